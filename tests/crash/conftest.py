"""Lets the crash tests import their simulated disk from beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
