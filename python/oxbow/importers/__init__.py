# SPDX-License-Identifier: Apache-2.0
"""Run files of other tools as settings of oxbow: what `oxbow import-config` runs."""
