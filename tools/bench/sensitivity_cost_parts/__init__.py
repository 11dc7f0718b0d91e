"""The parts of tools/bench/sensitivity_cost.py: its runs, what follows from their steps, its rows."""
