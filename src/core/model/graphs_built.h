// Whether this build can record CUDA graphs (graph_recorder.h); for those who know no torch.
#pragma once

namespace oxbow::model {

bool HasCudaGraphs();

}  // namespace oxbow::model
