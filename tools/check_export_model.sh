#!/usr/bin/env bash
# Checks tools/encode_prompts, tools/export_model and examples/pretrain: their tests, and every small model against diffusers and its pipeline.
# Needs the packages of tools/export_model/requirements.txt; without them it says so in one line and passes.
#
#   tools/check_export_model.sh      with .deps/export/bin/python, or with $OXBOW_EXPORT_PYTHON
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")"
python=${OXBOW_EXPORT_PYTHON:-$PWD/../.deps/export/bin/python}
if ! "$python" -c 'import diffusers, peft, torch, transformers' 2>/dev/null; then
  echo "export_model: skipped: $python has no diffusers, peft, torch and transformers (tools/export_model/README.md)"
  exit 0
fi
"$python" -m unittest discover -s export_model/tests -t .
"$python" encode_prompts/tests/test_encode_prompts.py
"$python" ../examples/pretrain/test_train.py
"$python" -m export_model check
