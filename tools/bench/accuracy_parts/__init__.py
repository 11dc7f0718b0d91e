"""The parts of tools/bench/accuracy.py."""
