// SPDX-License-Identifier: Apache-2.0
// The text of a config value, as in a resolved config file.
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace oxbow::config {

// The value of `field`, or the list of its values. It reads back to the same bits.
std::string FieldText(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

}  // namespace oxbow::config
