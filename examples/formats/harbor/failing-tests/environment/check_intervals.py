import unittest

from intervals import merge


class MergeTest(unittest.TestCase):
    def test_overlap(self):
        self.assertEqual(merge([(1, 4), (3, 6)]), [(1, 6)])

    def test_order(self):
        self.assertEqual(merge([(5, 6), (1, 2)]), [(1, 2), (5, 6)])

    def test_contained(self):
        self.assertEqual(merge([(1, 9), (2, 3)]), [(1, 9)])
