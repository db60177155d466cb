#include "core/model/architecture.h"
#include "core/model/sd3.h"

namespace oxbow::model {

const std::vector<ArchitectureRow>& ArchitectureTable() {
  static const std::vector<ArchitectureRow> table = {{kSd3ClassName, ReadSd3Architecture}};
  return table;
}

}  // namespace oxbow::model
