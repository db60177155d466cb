// SPDX-License-Identifier: Apache-2.0
#include "rewards/ppocr_reader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/model/device_memory.h"
#include "core/reward/line_decoder.h"
#include "io/diffusers_directory.h"
#include "rewards/network_files.h"
#include "rewards/text_regions.h"

namespace oxbow::rewards {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using reward::PixelSize;

constexpr int kPictureSideMax = 4000;
constexpr size_t kLinesAtATime = 6;
constexpr uint64_t kJsonBytesMax = 16 << 20;
// Mean and deviation of the colours that the networks were trained on, in their order.
constexpr std::array kColourMean = {0.485, 0.456, 0.406};
constexpr std::array kColourDeviation = {0.229, 0.224, 0.225};

// A network by what its config.json calls it and the class of its graph.
using Kind = std::pair<const char*, const char*>;
constexpr Kind kDetectors[] = {{"pp_ocrv5_mobile_det", "PPOCRV5MobileDetForObjectDetection"},
                               {"pp_ocrv5_server_det", "PPOCRV5ServerDetForObjectDetection"},
                               {"pp_ocrv6_small_det", "PPOCRV6SmallDetForObjectDetection"},
                               {"pp_ocrv6_medium_det", "PPOCRV6MediumDetForObjectDetection"}};
constexpr Kind kRecognisers[] = {{"pp_ocrv5_mobile_rec", "PPOCRV5MobileRecForTextRecognition"},
                                 {"pp_ocrv5_server_rec", "PPOCRV5ServerRecForTextRecognition"},
                                 {"pp_ocrv6_tiny_rec", "PPOCRV6TinyRecForTextRecognition"},
                                 {"pp_ocrv6_small_rec", "PPOCRV6SmallRecForTextRecognition"}};

absl::StatusOr<OpenedNetwork> OpenKind(const fs::path& directory, const std::string& noun,
                                       absl::Span<const Kind> kinds,
                                       const model::exported::NetworkOptions& options) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(directory / "config.json", kJsonBytesMax));
  const Json config = ParseJson(text);
  const Json type = config.is_object() ? config.value("model_type", Json()) : Json();
  const std::string named = type.is_string() ? type.get<std::string>() : "";
  std::string known;
  for (const auto& [model_type, class_name] : kinds) {
    if (named == model_type) return OpenNetwork(directory, class_name, options);
    absl::StrAppend(&known, known.empty() ? "" : " or ", model_type);
  }
  return absl::FailedPreconditionError(absl::StrCat((directory / "config.json").string(),
                                                    ": model_type is \"", named.substr(0, 60),
                                                    "\", but a ", noun, " is ", known));
}

absl::StatusOr<std::vector<std::string>> ReadCharacters(const fs::path& path, int64_t classes) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kJsonBytesMax));
  absl::StatusOr<std::vector<std::string>> characters = reward::ParseCharacters(text, classes);
  if (!characters.ok()) return io::DataError(characters.status(), path);
  return characters;
}

// In three channels, with black at right and below up to `size`.
Image8 Padded(const Image8& picture, PixelSize size) {
  if (picture.channels == 3 && size == PixelSize{picture.width, picture.height}) return picture;
  Image8 padded{.width = size.width, .height = size.height, .channels = 3, .pixels = {}};
  padded.pixels.resize(static_cast<size_t>(size.width) * size.height * 3);
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width * 3; ++x) {
      const int from = picture.channels == 3 ? x : x / 3;
      padded.pixels[static_cast<size_t>(y) * size.width * 3 + x] =
          picture.pixels[static_cast<size_t>(y) * picture.width * picture.channels + from];
    }
  }
  return padded;
}

// [3, H, W], 0 to 255.
at::Tensor Planes(const Image8& picture) {
  const at::Tensor bytes = at::from_blob(const_cast<uint8_t*>(picture.pixels.data()),
                                         {picture.height, picture.width, 3}, at::kByte);
  return bytes.permute({2, 0, 1}).to(at::kFloat, false, false, at::MemoryFormat::Contiguous);
}

// In the order and precision of PaddleX, whose bytes are multiplied before they are shifted.
at::Tensor DetectionPixels(const Image8& picture) {
  at::Tensor planes = Planes(picture);
  for (int64_t c = 0; c < 3; ++c) {
    planes[c].mul_(1 / 255. / kColourDeviation[c]).add_(-kColourMean[c] / kColourDeviation[c]);
  }
  return planes.unsqueeze(0);
}

class PpocrReader final : public TextReader {
 public:
  PpocrReader(OpenedNetwork detector, OpenedNetwork recogniser, std::vector<std::string> characters,
              const PpocrSettings& settings)
      : detector_(std::move(detector.network)),
        recogniser_(std::move(recogniser.network)),
        characters_(std::move(characters)),
        confidence_min_(settings.confidence_min),
        identity_(absl::StrCat("ppocr/1 det ", detector.identity, " rec ", recogniser.identity,
                               " characters ",
                               Sha256Hex(absl::StrJoin(characters_, "\n")).substr(0, 16),
                               " confidence_min ", settings.confidence_min)) {}

  absl::StatusOr<std::string> Read(const Image8& picture) override;
  const std::string& identity() const override { return identity_; }
  int engines() const override { return 1; }  // PyTorch has threads of its own.
  std::string help() const override { return "PP-OCR"; }

 private:
  absl::StatusOr<std::string> TextOf(const Image8& picture) const;
  absl::StatusOr<std::vector<reward::TextBox>> Find(const Image8& picture) const;
  absl::Status ReadLines(absl::Span<const Image8* const> lines,
                         absl::Span<reward::LineText* const> texts) const;

  const std::unique_ptr<model::exported::ExportedNetwork> detector_;
  const std::unique_ptr<model::exported::ExportedNetwork> recogniser_;
  const std::vector<std::string> characters_;
  const double confidence_min_;
  const std::string identity_;
};

// The one output of a network, of the shape that it must have.
absl::StatusOr<at::Tensor> OutputOf(const model::exported::ExportedNetwork& network,
                                    const std::string& name, const at::Tensor& pixels,
                                    at::IntArrayRef shape) {
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors outputs, network.Run({{"pixels", pixels}}));
  const auto found = outputs.find(name);
  const auto fits = [](int64_t wanted, int64_t size) { return wanted < 0 || size == wanted; };
  if (found == outputs.end() || !std::ranges::equal(shape, found->second.sizes(), fits)) {
    return absl::InternalError("the graph has no output of PP-OCR's: " + name);
  }
  if (!found->second.isfinite().all().item<bool>()) {
    return absl::InternalError("PP-OCR's output is not finite: " + name);
  }
  return found->second;
}

absl::StatusOr<std::vector<reward::TextBox>> PpocrReader::Find(const Image8& picture) const {
  const PixelSize size{picture.width, picture.height};
  const reward::DetectionSizes sizes = reward::DetectionSizesOf(size);
  Image8 seen = Padded(picture, sizes.padded);
  if (sizes.resized != sizes.padded) seen = ResizeAsOpenCv(seen, sizes.resized);
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor map, OutputOf(*detector_, "map", DetectionPixels(seen),
                                                        {1, 1, seen.height, seen.width}));
  return FindTextBoxes({map.const_data_ptr<float>(), static_cast<size_t>(map.numel())},
                       sizes.resized, size);
}

// As wide as the widest of them; grey behind the others.
absl::Status PpocrReader::ReadLines(absl::Span<const Image8* const> lines,
                                    absl::Span<reward::LineText* const> texts) const {
  int widest = 0;
  for (const Image8* line : lines) {
    widest = std::max(widest, reward::LineWidthsOf({line->width, line->height}).padded);
  }
  const int64_t rows = std::ssize(lines);
  const at::Tensor pixels = at::zeros({rows, 3, reward::kLineHeight, widest});
  for (int64_t row = 0; row < rows; ++row) {
    const Image8& line = *lines[static_cast<size_t>(row)];
    const int width = reward::LineWidthsOf({line.width, line.height}).resized;
    const at::Tensor planes = Planes(ResizeAsOpenCv(line, {width, reward::kLineHeight}));
    pixels[row].narrow(-1, 0, width).copy_(planes.div(255).sub(0.5).div(0.5));
  }
  OXBOW_ASSIGN_OR_RETURN(
      const at::Tensor probabilities,
      OutputOf(*recogniser_, "probabilities", pixels, {rows, -1, std::ssize(characters_)}));
  const auto [best, classes] = at::max(probabilities, -1);
  const auto steps = static_cast<size_t>(best.size(1));
  for (size_t row = 0; row < texts.size(); ++row) {
    *texts[row] =
        reward::DecodeLine({classes.const_data_ptr<int64_t>() + row * steps, steps},
                           {best.const_data_ptr<float>() + row * steps, steps}, characters_);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> PpocrReader::Read(const Image8& picture) {
  OXBOW_RETURN_IF_ERROR(CheckReadable(picture, kPictureSideMax));
  absl::StatusOr<std::string> text = std::string();
  OXBOW_RETURN_IF_ERROR(model::WithMemoryFor([&] { return (text = TextOf(picture)).status(); },
                                             "give the reward a device with more room (device)"));
  return text;
}

absl::StatusOr<std::string> PpocrReader::TextOf(const Image8& picture) const {
  const Image8 colour = Padded(picture, {picture.width, picture.height});
  OXBOW_ASSIGN_OR_RETURN(const std::vector<reward::TextBox> boxes, Find(colour));
  std::vector<Image8> lines;
  for (const reward::TextBox& box : boxes) {
    if (std::optional<Image8> line = CutLine(colour, box)) lines.push_back(*std::move(line));
  }
  std::vector<reward::LineText> texts(lines.size());
  std::vector<const Image8*> order;
  for (const Image8& line : lines) order.push_back(&line);
  std::stable_sort(order.begin(), order.end(), [](const Image8* a, const Image8* b) {
    return 1. * a->width / a->height < 1. * b->width / b->height;
  });
  for (size_t begin = 0; begin < order.size(); begin += kLinesAtATime) {
    const auto part = absl::MakeSpan(order).subspan(begin, kLinesAtATime);
    std::vector<reward::LineText*> into;
    for (const Image8* line : part) into.push_back(&texts[static_cast<size_t>(line - &lines[0])]);
    OXBOW_RETURN_IF_ERROR(ReadLines(part, into));
  }
  std::vector<std::string> read;
  for (const reward::LineText& line : texts) {
    if (line.confidence >= confidence_min_ && !line.text.empty()) read.push_back(line.text);
  }
  return absl::StrJoin(read, "\n");
}

}  // namespace

absl::Status CheckPpocr(const PpocrSettings& settings) {
  OXBOW_RETURN_IF_ERROR(OptionsNamed(settings.device, settings.dtype).status());
  if (settings.confidence_min >= 0 && settings.confidence_min <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("confidence_min is 0 to 1, got ", settings.confidence_min));
}

absl::StatusOr<std::unique_ptr<TextReader>> OpenPpocr(const PpocrSettings& settings) {
  OXBOW_RETURN_IF_ERROR(CheckPpocr(settings));
  OXBOW_ASSIGN_OR_RETURN(const auto options, OptionsNamed(settings.device, settings.dtype));
  const fs::path det = settings.directory / "det", rec = settings.directory / "rec";
  OXBOW_ASSIGN_OR_RETURN(OpenedNetwork detector,
                         OpenKind(det, "text detector", kDetectors, options));
  OXBOW_ASSIGN_OR_RETURN(OpenedNetwork recogniser,
                         OpenKind(rec, "text recogniser", kRecognisers, options));
  const auto classes =
      Json::parse(recogniser.network->config_json()).value("head_out_channels", int64_t{0});
  OXBOW_ASSIGN_OR_RETURN(std::vector<std::string> characters,
                         ReadCharacters(rec / "preprocessor_config.json", classes));
  return std::make_unique<PpocrReader>(std::move(detector), std::move(recogniser),
                                       std::move(characters), settings);
}

}  // namespace oxbow::rewards
