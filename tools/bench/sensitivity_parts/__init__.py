"""The parts of tools/bench/sensitivity.py: its models, its worker process, what follows from a profile, its bars."""
