#include "core/model/graphs_built.h"

namespace oxbow::model {

bool HasCudaGraphs() { return OXBOW_HAS_CUDA_GRAPHS; }

}  // namespace oxbow::model
