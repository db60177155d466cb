// Stands in for cuda_graph_recorder.cc in builds without CUDA.
#include "base/check.h"
#include "core/model/graph_recorder.h"

namespace oxbow::model {

std::unique_ptr<GraphRecorder> MakeCudaGraphRecorder(at::Device device) {
  OXBOW_CHECK(false) << "a build without CUDA has no graphs on " << device.str();
  return nullptr;
}

}  // namespace oxbow::model
