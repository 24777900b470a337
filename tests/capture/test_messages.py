"""Messages between ranks: which may be each other's partner."""

import unittest

from stepgraph_capture import CaptureError, messages


class Messages(unittest.TestCase):
    def agree(self, sent, received):
        way = messages.Way(0, 1)
        messages.check_agree([[(way, what, " at a.py:1") for what in sent], [(way, what, "") for what in received]])

    def test_partners_have_one_count_and_one_type(self):
        self.agree(["4 float32", "2 int64"], ["4 float32", "2 int64"])
        self.agree(["? float32"], ["4 float32"])  # only the data decides
        for sent, received in (
            (["4 float32"], ["3 float32"]),
            (["4 float32"], ["4 bfloat16"]),
            (["? float32"], ["4 bfloat16"]),
            (["4 float32"], []),
            ([], ["4 float32"]),
            (["4 float32", "2 int64"], ["2 int64", "4 float32"]),
        ):
            with self.subTest(sent=sent, received=received), self.assertRaisesRegex(CaptureError, "needs its partner"):
                self.agree(sent, received)


if __name__ == "__main__":
    unittest.main()
