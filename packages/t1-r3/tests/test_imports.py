import subprocess
import sys

from t1_r3 import MissingExtraError


def interpreter(code):
    """Run code in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_core_imports_no_torch():
    result = interpreter("import sys, t1_r3; print('torch' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr


def test_without_torch_the_error_says_how_to_install_it():
    result = interpreter("import sys; sys.modules['torch'] = None; import t1_r3.torch")
    assert "MissingExtraError" in result.stderr
    assert "pip install 't1-r3[torch]'" in result.stderr
    assert issubclass(MissingExtraError, ImportError)
