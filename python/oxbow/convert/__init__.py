# SPDX-License-Identifier: Apache-2.0
"""Files of other tools as files that oxbow reads: what `oxbow convert-weights` runs."""
