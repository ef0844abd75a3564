"""Ask a broker what it speaks, and call it, without any code made for it: `python examples/grpc_reflect.py [HOST:PORT]`.

    python examples/grpc_reflect.py 127.0.0.1:50051                                    # lists services and calls
    python examples/grpc_reflect.py 127.0.0.1:50051 Enqueue '{"message": {"queue": "orders", "body": "aGVsbG8="}}'
    python examples/grpc_reflect.py 127.0.0.1:50051 GetStatus '{"queue": "orders"}'

It does by server reflection what `grpcurl` does.
"""

import argparse

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

BROKER = "penstock.v1.Broker"


def listed(channel: grpc.Channel) -> None:
    """Print all services, and the calls of each with their messages."""
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)
    for name in sorted(database.get_services()):
        print(name)
        for method in pool.FindServiceByName(name).methods:
            print(f"  {method.name}({method.input_type.name}) -> {method.output_type.name}")


def called(channel: grpc.Channel, name: str, text: str) -> None:
    """Call a method that has one request and one response, and print what it answers, both as JSON."""
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    method = pool.FindServiceByName(BROKER).methods_by_name[name]
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    call = channel.unary_unary(f"/{BROKER}/{name}", request.SerializeToString, response.FromString)
    try:
        print(json_format.MessageToJson(call(json_format.Parse(text, request())), preserving_proto_field_name=True))
    except grpc.RpcError as error:
        print(f"{error.code().name}: {error.details()}")


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", nargs="?", default="127.0.0.1:50051", metavar="HOST:PORT")
    parser.add_argument("method", nargs="?", help="a call of the broker; all are listed if none is named")
    parser.add_argument("request", nargs="?", default="{}", help="in JSON; bytes are in base64")
    asked = parser.parse_args()
    with grpc.insecure_channel(asked.address) as channel:
        if asked.method is None:
            listed(channel)
        else:
            called(channel, asked.method, asked.request)


if __name__ == "__main__":
    main()
