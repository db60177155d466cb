# SPDX-License-Identifier: Apache-2.0
"""The bytes of messages, written by hand: field numbers and types are the protocol's."""
import unittest

from servers import wire


class WireTest(unittest.TestCase):
    def check(self, message, expected):
        self.assertEqual(message.SerializeToString(), expected)
        self.assertEqual(type(message).FromString(expected), message)

    def test_a_request(self):
        image = wire.Image(width=1, height=1, channels=1, frames=1, pixels=b"\x07", encoding="png", pixels_size=300)
        image_bytes = b"\x08\x01\x10\x01\x18\x01\x20\x01\x2a\x01\x07\x32\x03png\x38\xac\x02"
        request = wire.ScoreRequest(items=[wire.ScoreItem(item=5, image=image)], rewards=["a"], group=7,
                                    group_complete=True)
        request.prompt.text = "p"
        item = b"\x08\x05\x12" + bytes([len(image_bytes)]) + image_bytes
        self.check(request, b"\x0a\x03\x12\x01p\x12" + bytes([len(item)]) + item + b"\x1a\x01a\x20\x07\x28\x01")

    def test_a_response(self):
        response = wire.ScoreResponse(item=5, status_code=3, status_message="m")
        response.rewards.add(name="a", value=1.0)
        response.outcomes.add(name="b", value=2.0, status_code=3, status_message="m", note="n")
        one, two = b"\x00\x00\x00\x00\x00\x00\xf0\x3f", b"\x00\x00\x00\x00\x00\x00\x00\x40"
        outcome = b"\x0a\x01b\x11" + two + b"\x18\x03\x22\x01m\x2a\x01n"
        self.check(response, b"\x08\x05\x10\x03\x1a\x01m\x22\x0c\x0a\x01a\x11" + one
                   + b"\x2a" + bytes([len(outcome)]) + outcome)

    def test_a_description(self):
        response = wire.DescribeResponse(batch_max=64)
        response.rewards.add(name="a", identity="i", media=["video"], metadata_keys=["k"], batch_max=9)
        reward = b"\x0a\x01a\x32\x01i\x3a\x05video\x42\x01k\x48\x09"
        self.check(response, b"\x0a" + bytes([len(reward)]) + reward + b"\x10\x40")

    def test_health(self):
        self.check(wire.HealthCheckRequest(service="s"), b"\x0a\x01s")
        self.check(wire.HealthCheckResponse(status=wire.SERVING), b"\x08\x01")


if __name__ == "__main__":
    unittest.main()
