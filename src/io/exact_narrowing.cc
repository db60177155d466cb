// SPDX-License-Identifier: Apache-2.0
#include "io/exact_narrowing.h"

#include <ATen/ATen.h>

namespace oxbow::io {

at::Tensor NarrowedExactly(const at::Tensor& values) {
  if (values.scalar_type() != at::kFloat) return values;
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor narrow = values.to(type);
    if (at::equal(narrow.to(at::kFloat), values)) return narrow;
  }
  return values;
}

}  // namespace oxbow::io
