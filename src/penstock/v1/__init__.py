"""What `proto/penstock/v1/` says, as Python code: its messages, and stubs to call a broker by.

    from penstock.v1.broker_pb2_grpc import BrokerStub

All but this sentence is written by `scripts/generate-grpc`. It needs `pip install "penstock[grpc]"`.
"""
