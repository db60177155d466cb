// SPDX-License-Identifier: Apache-2.0
#include "core/model/architecture.h"
#include "core/model/exported_graph/exported_architecture.h"
#include "core/model/sd3.h"

namespace oxbow::model {

// The first row that fits is taken, so the one of any class is the last.
const std::vector<ArchitectureRow>& ArchitectureTable() {
  static const std::vector<ArchitectureRow> table = {
      {kSd3ClassName,
       [](const ArchitectureSource& source) { return ReadSd3Architecture(source.config_json); }},
      {kAnyClass, exported::ReadExportedArchitecture}};
  return table;
}

}  // namespace oxbow::model
