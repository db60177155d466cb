# SPDX-License-Identifier: Apache-2.0
"""Every cell of the notebooks runs, and draws what it says."""
import os
import tempfile
import unittest
import unittest.mock
from pathlib import Path

from runs import WrittenRun

try:
    import ipykernel  # noqa: F401: the kernel that nbclient starts
    import matplotlib  # noqa: F401: what the notebook draws with
    import nbformat
    from nbclient import NotebookClient
    from PIL import Image  # noqa: F401
except ImportError:
    NotebookClient = None

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"


@unittest.skipUnless(NotebookClient, "nbclient, ipykernel and matplotlib are not installed")
class NotebookTest(unittest.TestCase):
    def test_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            WrittenRun(Path(folder, "digits")).write(*range(11))
            notebook = nbformat.read(NOTEBOOKS / "a_run.ipynb", as_version=4)
            with unittest.mock.patch.dict(os.environ, OXBOW_RUN=str(Path(folder, "digits")), MPLBACKEND="agg"):
                NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
        text = "".join(output.get("text", "") for output in outputs)
        self.assertIn("digits ended at step 10 of 10", text)
        self.assertIn("keeps no replay", text)

    def test_notebooks_are_kept_without_outputs(self):
        for path in NOTEBOOKS.glob("*.ipynb"):
            for cell in nbformat.read(path, as_version=4).cells:
                self.assertFalse(cell.get("outputs"), path)


if __name__ == "__main__":
    unittest.main()
