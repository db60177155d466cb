#include "core/model/graph_recorder.h"

#include "core/model/graphs_built.h"

namespace oxbow::model {

absl::Status CheckGraphs(at::Device device) {
  if (!device.is_cuda()) {
    return absl::InvalidArgumentError(
        "model.cuda_graphs needs a GPU: set it to false, or the device to cuda: " + device.str());
  }
  if (!HasCudaGraphs()) {
    return absl::UnimplementedError(
        "this build has no CUDA graphs: build it with -DOXBOW_CUDA=ON, or set model.cuda_graphs to "
        "false");
  }
  return absl::OkStatus();
}

}  // namespace oxbow::model
