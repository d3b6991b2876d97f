"""Answers as one page with pictures, and each picture as a file."""
