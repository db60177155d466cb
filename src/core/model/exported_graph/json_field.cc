// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/json_field.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace oxbow::model::exported {

std::string Field::Path() const {
  if (parent_ == nullptr) return "";
  const std::string before = parent_->Path();
  if (key_.empty()) return absl::StrCat(before, "[", index_, "]");
  return before.empty() ? std::string(key_) : absl::StrCat(before, ".", std::string(key_));
}

absl::Status Field::Error(const std::string& what) const {
  const std::string path = Path();
  return absl::InvalidArgumentError(path.empty() ? what : absl::StrCat(path, ": ", what));
}

absl::StatusOr<Field> Field::At(std::string_view key) const {
  if (!json_->is_object()) return Error("not an object");
  if (std::optional<Field> found = Find(key)) return *found;
  return Error(absl::StrCat("no key `", std::string(key), "`"));
}

std::optional<Field> Field::Find(std::string_view key) const {
  if (!json_->is_object()) return std::nullopt;
  const auto found = json_->find(key);
  if (found == json_->end()) return std::nullopt;
  Field field(*found);
  field.parent_ = this;
  field.key_ = found.key();
  return field;
}

Field Field::Element(size_t index) const {
  Field field((*json_)[index]);
  field.parent_ = this;
  field.index_ = index;
  return field;
}

absl::Status Field::ExpectObject(std::initializer_list<std::string_view> keys) const {
  if (!json_->is_object()) return Error("not an object");
  for (auto member = json_->begin(); member != json_->end(); ++member) {
    if (std::find(keys.begin(), keys.end(), member.key()) == keys.end()) {
      return Error("unknown key, and its meaning may matter: " + member.key().substr(0, kTextMax));
    }
  }
  return absl::OkStatus();
}

absl::Status Field::ExpectList(size_t size_max) const {
  if (!json_->is_array()) return Error("not a list");
  if (size() > size_max) {
    return Error(absl::StrCat("more than ", size_max, " elements: ", size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Field::Integer(int64_t min, int64_t max) const {
  // A number beyond 63 bits is unsigned.
  const bool beyond = json_->is_number_unsigned() && json_->get<uint64_t>() > INT64_MAX;
  if (json_->is_number_integer() && !beyond) {
    const auto value = json_->get<int64_t>();
    if (value >= min && value <= max) return value;
  }
  return Error(absl::StrCat("not a whole number from ", min, " to ", max));
}

absl::StatusOr<bool> Field::Bool() const {
  if (!json_->is_boolean()) return Error("not true or false");
  return json_->get<bool>();
}

absl::StatusOr<std::string> Field::Text() const {
  if (!json_->is_string()) return Error("not a string");
  const auto& text = json_->get_ref<const std::string&>();
  if (text.empty() || text.size() > kTextMax) {
    return Error(absl::StrCat("not a string of 1 to ", kTextMax, " bytes"));
  }
  return text;
}

}  // namespace oxbow::model::exported
