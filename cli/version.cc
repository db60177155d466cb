// SPDX-License-Identifier: Apache-2.0
#include "cli/version.h"

#include <google/protobuf/stubs/common.h>
#include <grpcpp/grpcpp.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/revision.h"  // Written at every build.

namespace oxbow::cli {

BuildFacts ThisBuild() {
  return {.version = OXBOW_VERSION,
          .git = OXBOW_GIT_HASH,
          .libtorch = OXBOW_TORCH_VERSION,
          .grpc = grpc::Version(),
          .protobuf = google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION),
          .build_type = OXBOW_BUILD_TYPE};
}

std::string VersionText(const BuildFacts& facts, bool json) {
  if (json) {
    return nlohmann::ordered_json{{"name", "oxbow"},
                                  {"version", facts.version},
                                  {"git", facts.git},
                                  {"libtorch", facts.libtorch},
                                  {"grpc", facts.grpc},
                                  {"protobuf", facts.protobuf},
                                  {"build_type", facts.build_type}}
        .dump();
  }
  return absl::StrCat("oxbow ", facts.version, " (git ", facts.git, ", LibTorch ", facts.libtorch,
                      ", gRPC ", facts.grpc, ", protobuf ", facts.protobuf, ", ", facts.build_type,
                      ")");
}

}  // namespace oxbow::cli
