// Gloo on CPU. The only file that sees Gloo's headers, which are not those torch was built with:
// nothing here or in a signature may depend on the layout of a Gloo type.
#include <ATen/ATen.h>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "core/parallel/network_address.h"
#include "core/parallel/process_group.h"

namespace oxbow::parallel {

c10::intrusive_ptr<c10d::Backend> MakeGlooGroup(const GroupOptions& options) {
  auto gloo = c10d::ProcessGroupGloo::Options::create(absl::ToChronoMilliseconds(options.timeout));
  gloo->threads = 1;  // Operations run in the order they were begun.
  if (!options.interface.empty()) {
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(options.interface));
  } else {
    const auto local = LocalAddressTowards(options.address);
    TORCH_CHECK(local.ok(), local.status().ToString());
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(*local));
  }
  return c10::make_intrusive<c10d::ProcessGroupGloo>(options.store, options.rank, options.size,
                                                     gloo);
}

}  // namespace oxbow::parallel
