// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/overwritten_nodes.h"

#include <map>
#include <set>

#include "core/model/exported_graph/program.h"

namespace oxbow::model::exported {

Graph OverwriteDeadInputs(Graph graph) {
  const std::set<std::string> makers = {"aten::conv2d", "aten::conv_transpose2d", "aten::linear",
                                        "aten::add", "aten::mul"};
  std::map<Slot, int> reads = ReadCounts(graph);
  std::set<Slot> own;  // Results that are no views.
  for (const GraphNode& node : graph.nodes) {
    if (makers.contains(node.op)) own.insert(node.outputs[0]);
  }
  for (GraphNode& node : graph.nodes) {
    if (node.op != "aten::relu") continue;
    const std::vector<Slot> read = ReadsOf(node);
    if (read.size() == 1 && reads[read[0]] == 1 && own.contains(read[0])) node.op += "_";
  }
  return graph;
}

}  // namespace oxbow::model::exported
