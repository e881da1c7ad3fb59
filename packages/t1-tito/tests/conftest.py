"""Test modules may import their helpers, such as `real_tokenizers`, from this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
