// SPDX-License-Identifier: Apache-2.0
// The script of a run's page: values under the pointer, the slider over the sheets, and what is new
// while the run is live.
#pragma once

namespace oxbow::io {

extern const char kPageScript[];

}  // namespace oxbow::io
