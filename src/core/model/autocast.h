// Products in a shorter type than their operands': at::autocast for one scope and this thread.
//
// Matrix products and attention are computed in `dtype`, norms and sums in float32, as PyTorch's
// autocast lists say. float32 changes nothing.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace oxbow::model {

class AutocastScope {
 public:
  AutocastScope(c10::DeviceType device, c10::ScalarType dtype);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const c10::DeviceType device_;
  const bool active_;
  bool was_enabled_ = false;
  c10::ScalarType was_dtype_ = c10::ScalarType::Float;
};

}  // namespace oxbow::model
