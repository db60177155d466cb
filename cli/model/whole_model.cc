// SPDX-License-Identifier: Apache-2.0
#include "cli/model/whole_model.h"

#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kIndex[] = "model_index.json";
constexpr uint64_t kWeightIndexBytesMax = 1 << 20;

absl::Status Failed(const char* what, const fs::path& path, const std::error_code& error) {
  return absl::InternalError(absl::StrCat(what, ": ", error.message(), ": ", path.string()));
}

// A file of a hub's cache is a link to where its bytes are.
absl::Status LinkOrCopy(const fs::path& from, const fs::path& to) {
  std::error_code error;
  const fs::path file = fs::canonical(from, error);
  if (error) return Failed("cannot find file", from, error);
  const fs::path temporary = TemporaryOf(to);
  std::error_code ignored;
  fs::create_hard_link(file, temporary, error);
  if (error) {
    error.clear();
    fs::copy_file(file, temporary, error);
  }
  if (!error) fs::rename(temporary, to, error);
  fs::remove(temporary, ignored);  // rename leaves both of two links to one file.
  return error ? Failed("cannot copy file", to, error) : absl::OkStatus();
}

absl::Status AddPart(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to, error);
  if (error) return Failed("cannot create directory", to, error);
  fs::directory_iterator files(from, error);
  if (error) return absl::NotFoundError(absl::StrCat("no such part: ", from.string()));
  for (; files != fs::directory_iterator(); files.increment(error)) {
    if (error) return Failed("cannot list directory", from, error);
    if (!files->is_regular_file(error)) continue;  // Follows links.
    OXBOW_RETURN_IF_ERROR(LinkOrCopy(files->path(), to / files->path().filename()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddOtherParts(const fs::path& model, const std::string& except, const fs::path& out) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(model / kIndex, kWeightIndexBytesMax));
  const auto index = ParseJson(text);
  if (!index.is_object()) {
    return absl::DataLossError(absl::StrCat("no JSON object: ", (model / kIndex).string()));
  }
  for (const auto& [name, part] : index.items()) {
    // Optional parts that the model has not are [null, null].
    const bool is_part = part.is_array() && part.size() == 2 && part[0].is_string();
    if (!is_part || name == except) continue;
    OXBOW_RETURN_IF_ERROR(AddPart(model / name, out / name));
  }
  return WriteFileAtomically(out / kIndex, text);
}

}  // namespace oxbow::cli
