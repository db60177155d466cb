#include "core/model/autocast.h"

#include <ATen/autocast_mode.h>

namespace oxbow::model {

AutocastScope::AutocastScope(c10::DeviceType device, c10::ScalarType dtype)
    : device_(device), active_(dtype != c10::ScalarType::Float) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device);
  was_dtype_ = at::autocast::get_autocast_dtype(device);
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  // Casts of weights are kept within the outermost scope; a later one may see other weights.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, was_dtype_);
}

}  // namespace oxbow::model
