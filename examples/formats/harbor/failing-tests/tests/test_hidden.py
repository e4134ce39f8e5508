import unittest

from intervals import merge


class HiddenTest(unittest.TestCase):
    def test_nothing(self):
        self.assertEqual(merge([]), [])

    def test_touching(self):
        self.assertEqual(merge([(1, 2), (3, 4)]), [(1, 4)])

    def test_chain(self):
        self.assertEqual(merge([(8, 9), (1, 5), (4, 6), (2, 3)]), [(1, 6), (8, 9)])

    def test_argument_stays(self):
        given = [(3, 4), (1, 2)]
        merge(given)
        self.assertEqual(given, [(3, 4), (1, 2)])
