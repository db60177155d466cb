# SPDX-License-Identifier: Apache-2.0
"""Published comparisons by one command: checks, runs, and a page with our curves beside the document's numbers."""
