"""Types of the stubs in `broker_pb2_grpc`. Written by scripts/generate-grpc; not edited by hand."""

import grpc
from grpc import aio

from penstock.v1 import broker_pb2

class BrokerStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    Enqueue: grpc.UnaryUnaryMultiCallable[broker_pb2.EnqueueRequest, broker_pb2.EnqueueResponse]
    EnqueueStream: grpc.StreamStreamMultiCallable[broker_pb2.EnqueueStreamRequest, broker_pb2.EnqueueStreamResponse]
    Poll: grpc.UnaryUnaryMultiCallable[broker_pb2.PollRequest, broker_pb2.PollResponse]
    CompletePoll: grpc.UnaryUnaryMultiCallable[broker_pb2.CompletePollRequest, broker_pb2.CompletePollResponse]
    Fail: grpc.UnaryUnaryMultiCallable[broker_pb2.FailRequest, broker_pb2.FailResponse]
    Release: grpc.UnaryUnaryMultiCallable[broker_pb2.ReleaseRequest, broker_pb2.ReleaseResponse]
    KeepAlive: grpc.UnaryUnaryMultiCallable[broker_pb2.KeepAliveRequest, broker_pb2.KeepAliveResponse]
    Subscribe: grpc.StreamStreamMultiCallable[broker_pb2.SubscribeRequest, broker_pb2.SubscribeResponse]
    CreateQueue: grpc.UnaryUnaryMultiCallable[broker_pb2.CreateQueueRequest, broker_pb2.CreateQueueResponse]
    DeleteQueue: grpc.UnaryUnaryMultiCallable[broker_pb2.DeleteQueueRequest, broker_pb2.DeleteQueueResponse]
    GetStatus: grpc.UnaryUnaryMultiCallable[broker_pb2.GetStatusRequest, broker_pb2.GetStatusResponse]

class BrokerAsyncStub:
    def __init__(self, channel: aio.Channel) -> None: ...
    Enqueue: aio.UnaryUnaryMultiCallable[broker_pb2.EnqueueRequest, broker_pb2.EnqueueResponse]
    EnqueueStream: aio.StreamStreamMultiCallable[broker_pb2.EnqueueStreamRequest, broker_pb2.EnqueueStreamResponse]
    Poll: aio.UnaryUnaryMultiCallable[broker_pb2.PollRequest, broker_pb2.PollResponse]
    CompletePoll: aio.UnaryUnaryMultiCallable[broker_pb2.CompletePollRequest, broker_pb2.CompletePollResponse]
    Fail: aio.UnaryUnaryMultiCallable[broker_pb2.FailRequest, broker_pb2.FailResponse]
    Release: aio.UnaryUnaryMultiCallable[broker_pb2.ReleaseRequest, broker_pb2.ReleaseResponse]
    KeepAlive: aio.UnaryUnaryMultiCallable[broker_pb2.KeepAliveRequest, broker_pb2.KeepAliveResponse]
    Subscribe: aio.StreamStreamMultiCallable[broker_pb2.SubscribeRequest, broker_pb2.SubscribeResponse]
    CreateQueue: aio.UnaryUnaryMultiCallable[broker_pb2.CreateQueueRequest, broker_pb2.CreateQueueResponse]
    DeleteQueue: aio.UnaryUnaryMultiCallable[broker_pb2.DeleteQueueRequest, broker_pb2.DeleteQueueResponse]
    GetStatus: aio.UnaryUnaryMultiCallable[broker_pb2.GetStatusRequest, broker_pb2.GetStatusResponse]
