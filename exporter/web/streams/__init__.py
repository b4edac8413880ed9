"""Streams of events: for open pages and for programs, made once for all who follow."""
