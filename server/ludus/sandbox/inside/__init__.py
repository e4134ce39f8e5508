"""The program inside a box. It runs on the standard library alone; the server never imports it."""
