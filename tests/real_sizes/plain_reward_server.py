# SPDX-License-Identifier: Apache-2.0
"""A reward server as a stranger writes it: grpcio with its default options, nothing of the package `oxbow` but the messages.

    PYTHONPATH=python python plain_reward_server.py PORT       rewards `redness`, of pictures and videos
"""
import sys
import time
from concurrent import futures

import grpc
import numpy

from oxbow.protocol import message

DescribeRequest, DescribeResponse = message("oxbow.v1.DescribeRequest"), message("oxbow.v1.DescribeResponse")
ScoreRequest, ScoreResponse = message("oxbow.v1.ScoreRequest"), message("oxbow.v1.ScoreResponse")


def describe(request, context):
    reward = {"name": "redness", "value_min": 0, "value_max": 1, "identity": "redness/1", "media": ["image", "video"]}
    return DescribeResponse(rewards=[reward], batch_max=4, version="1", unix_time=time.time())


def redness(image, pixels):
    pixels = numpy.frombuffer(pixels, numpy.uint8).reshape(-1, image.channels).astype(float) / 255
    return 0.5 + (pixels[:, 0].mean() - pixels[:, 1:].mean()) / 2


def score(requests, context):
    heads, parts = {}, {}  # A medium that is larger than a message comes in pieces.
    for request in requests:
        for item in request.items:
            head = heads.setdefault(item.item, item.image)
            parts.setdefault(item.item, []).append(item.image.pixels)
            if sum(map(len, parts[item.item])) < head.pixels_size:
                continue
            value = redness(heads.pop(item.item), b"".join(parts.pop(item.item)))
            yield ScoreResponse(item=item.item, outcomes=[{"name": "redness", "value": value}])


def main():
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("oxbow.v1.Reward", {
        "Describe": grpc.unary_unary_rpc_method_handler(describe, DescribeRequest.FromString, DescribeResponse.SerializeToString),
        "Score": grpc.stream_stream_rpc_method_handler(score, ScoreRequest.FromString, ScoreResponse.SerializeToString)})])
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    server.start()
    print("serving", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
