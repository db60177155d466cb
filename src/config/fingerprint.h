// The hash by which a checkpoint knows the config of its run.
//
// Two configs have the same fingerprint if runs with them are the same but for how long they are,
// how often they evaluate and save, and where they compute. Which fields those are is an option of
// each field: FingerprintRules in proto/oxbow/v1/config.proto.
#pragma once

#include <string>

#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// SHA-256 in hex of the config's text form after the rules of all fields are applied. A section
// that is absent counts as an empty one.
std::string FingerprintOf(v1::RunConfig config);

}  // namespace oxbow::config
