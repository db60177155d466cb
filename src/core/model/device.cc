#include "core/model/device.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace oxbow::model {

int GpuCount() {
  return at::hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().deviceCount()) : 0;
}

absl::StatusOr<at::Device> DeviceNamed(const std::string& name, int local_rank) {
  if (name == "cpu") return at::Device(at::kCPU);
  absl::string_view number = name;
  int index = local_rank;
  if (name != "cuda" &&
      !(absl::ConsumePrefix(&number, "cuda:") && absl::SimpleAtoi(number, &index) && index >= 0)) {
    return absl::InvalidArgumentError("a device is cpu, cuda or cuda:N: " + name);
  }
  const int count = GpuCount();
  if (index >= count) {
    return absl::UnavailableError(absl::StrCat("no such device here, of ", count, " GPUs: ", name));
  }
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

}  // namespace oxbow::model
