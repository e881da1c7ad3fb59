import subprocess
import sys

import pytest

from t1_r3 import MissingExtraError


def interpreter(code, *arguments):
    """Run code in a fresh interpreter."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_core_imports_no_torch():
    result = interpreter("import sys, t1_r3; print('torch' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr


def test_without_torch_the_error_says_how_to_install_it():
    result = interpreter("import sys; sys.modules['torch'] = None; import t1_r3.torch")
    assert "MissingExtraError" in result.stderr
    assert "pip install 't1-r3[torch]'" in result.stderr
    assert issubclass(MissingExtraError, ImportError)


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        ("import part_of_torch", "ModuleNotFoundError: No module named 'part_of_torch'"),
        ("raise ImportError('libtorch.so')", "ImportError: libtorch.so"),
    ],
)
def test_a_torch_that_is_installed_but_broken_speaks_for_itself(tmp_path, defect, message):
    (tmp_path / "torch.py").write_text(defect)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import t1_r3.torch"
    result = interpreter(code, str(tmp_path))
    assert result.stderr.strip().endswith(message)
    assert "MissingExtraError" not in result.stderr
