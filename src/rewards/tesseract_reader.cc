// SPDX-License-Identifier: Apache-2.0
#include "rewards/tesseract_reader.h"

#include <tesseract/baseapi.h>
#include <tesseract/ocrclass.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/file.h"
#include "base/machine_share.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/reward/pillow_resize.h"

// OpenMP's own; GCC's <omp.h> is not there for other compilers.
extern "C" {
int omp_get_max_active_levels();
void omp_set_max_active_levels(int levels);
}

namespace oxbow::rewards {
namespace {

constexpr const char* kDebianTessdata = "/usr/share/tesseract-ocr/5/tessdata";
constexpr char kLanguage[] = "eng";
constexpr std::array kPageModes = {0, 3, 4, 6, 7, 8, 11, 13};
constexpr int kScaleMax = 8;
constexpr int kMarginMax = 256;
constexpr int kEnginesMax = 256;
constexpr int kResolution = 300;  // Dots per inch that Tesseract is told; it guesses else.

using Engine = tesseract::TessBaseAPI;

std::string DataPath(const TesseractSettings& settings) {
  std::string directory = settings.tessdata;
  if (const char* prefix = std::getenv("TESSDATA_PREFIX"); directory.empty() && prefix != nullptr) {
    directory = prefix;
  }
  if (directory.empty()) directory = kDebianTessdata;
  return absl::StrCat(directory, "/", kLanguage, ".traineddata");
}

bool HasOneColour(const Image8& picture) {
  const std::vector<uint8_t>& pixels = picture.pixels;
  return std::equal(pixels.begin() + picture.channels, pixels.end(), pixels.begin());
}

Image8 Framed(const Image8& picture, int margin) {
  Image8 framed{.width = picture.width + 2 * margin,
                .height = picture.height + 2 * margin,
                .channels = picture.channels,
                .pixels = {}};
  const auto row_bytes = static_cast<size_t>(framed.width) * framed.channels;
  framed.pixels.assign(row_bytes * framed.height, 255);
  const auto from_bytes = static_cast<size_t>(picture.width) * picture.channels;
  for (int y = 0; y < picture.height; ++y) {
    const auto from = picture.pixels.begin() + static_cast<std::ptrdiff_t>(y * from_bytes);
    std::copy(from, from + static_cast<std::ptrdiff_t>(from_bytes),
              framed.pixels.begin() + static_cast<std::ptrdiff_t>((y + margin) * row_bytes +
                                                                  margin * picture.channels));
  }
  return framed;
}

// Parallel regions that this thread enters run in it alone while this lives. Tesseract asks for
// four threads itself, so OMP_NUM_THREADS does not keep it from starting them.
class SingleThreaded {
 public:
  SingleThreaded() : levels_(omp_get_max_active_levels()) { omp_set_max_active_levels(0); }
  ~SingleThreaded() { omp_set_max_active_levels(levels_); }
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;

 private:
  const int levels_;
};

// A picture as Tesseract gets it.
struct Reading {
  Image8 picture;
  int page_mode = 0;
};

absl::StatusOr<std::string> Recognise(Engine& engine, const Reading& reading,
                                      absl::Duration deadline) {
  const SingleThreaded single;
  const Image8& picture = reading.picture;
  engine.SetPageSegMode(static_cast<tesseract::PageSegMode>(reading.page_mode));
  engine.SetImage(picture.pixels.data(), picture.width, picture.height, picture.channels,
                  picture.width * picture.channels);
  engine.SetSourceResolution(kResolution);
  tesseract::ETEXT_DESC monitor;
  monitor.set_deadline_msecs(static_cast<int32_t>(absl::ToInt64Milliseconds(deadline)));
  const int failed = engine.Recognize(&monitor);
  // The text read until then is a part of the whole, and nobody knows which.
  if (monitor.deadline_exceeded()) {
    return absl::DeadlineExceededError(
        absl::StrCat("picture was not read within ", absl::FormatDuration(deadline)));
  }
  if (failed != 0) return absl::InternalError("Tesseract cannot read the picture");
  const std::unique_ptr<char[]> text(engine.GetUTF8Text());
  if (text == nullptr) return absl::InternalError("Tesseract has no text for the picture");
  return std::string(absl::StripAsciiWhitespace(text.get()));
}

}  // namespace

absl::Status CheckTesseract(const TesseractSettings& settings) {
  const auto within = [](int value, int least, int most) {
    return value >= least && value <= most;
  };
  if (std::find(kPageModes.begin(), kPageModes.end(), settings.page_mode) == kPageModes.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_mode is none of 0, 3, 4, 6, 7, 8, 11, 13: ", settings.page_mode));
  }
  if (!within(settings.scale, 0, kScaleMax) || !within(settings.margin, -1, kMarginMax)) {
    return absl::InvalidArgumentError(absl::StrCat("scale is not 0 to ", kScaleMax,
                                                   ", or margin not -1 to ", kMarginMax, ": ",
                                                   settings.scale, ", ", settings.margin));
  }
  if (!within(settings.engines, 0, kEnginesMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("engines is not 0 to ", kEnginesMax, ": ", settings.engines));
  }
  // Tesseract counts in milliseconds, 31 bits, and takes 0 as no deadline.
  if (settings.deadline < absl::Milliseconds(1) || settings.deadline > absl::Hours(24)) {
    return absl::InvalidArgumentError(
        absl::StrCat("deadline is not 1 ms to 24 h: ", absl::FormatDuration(settings.deadline)));
  }
  return absl::OkStatus();
}

struct TesseractReader::Impl {
  absl::StatusOr<std::unique_ptr<Engine>> NewEngine() const;
  absl::StatusOr<std::unique_ptr<Engine>> Borrow();
  void GiveBack(std::unique_ptr<Engine> engine);
  absl::StatusOr<Reading> Prepared(const Image8& picture) const;

  TesseractSettings settings;
  std::string data;  // The traineddata.
  std::string identity;
  int engines_max = 1;

  absl::Mutex mutex;
  std::vector<std::unique_ptr<Engine>> idle ABSL_GUARDED_BY(mutex);
  int lent ABSL_GUARDED_BY(mutex) = 0;
};

absl::StatusOr<std::unique_ptr<Engine>> TesseractReader::Impl::NewEngine() const {
  auto engine = std::make_unique<Engine>();
  if (engine->Init(data.data(), static_cast<int>(data.size()), kLanguage, tesseract::OEM_LSTM_ONLY,
                   nullptr, 0, nullptr, nullptr, false, nullptr) != 0) {
    return absl::FailedPreconditionError("Tesseract refuses " + DataPath(settings));
  }
  engine->SetVariable("debug_file", "/dev/null");
  if (!settings.characters.empty() &&
      !engine->SetVariable("tessedit_char_whitelist", settings.characters.c_str())) {
    return absl::FailedPreconditionError("Tesseract refuses the characters " + settings.characters);
  }
  return engine;
}

absl::StatusOr<std::unique_ptr<Engine>> TesseractReader::Impl::Borrow() {
  {
    absl::MutexLock lock(&mutex);
    const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return lent < engines_max; };
    mutex.Await(absl::Condition(&free));
    ++lent;
    if (!idle.empty()) {
      std::unique_ptr<Engine> engine = std::move(idle.back());
      idle.pop_back();
      return engine;
    }
  }
  absl::StatusOr<std::unique_ptr<Engine>> engine = NewEngine();
  if (!engine.ok()) GiveBack(nullptr);
  return engine;
}

void TesseractReader::Impl::GiveBack(std::unique_ptr<Engine> engine) {
  absl::MutexLock lock(&mutex);
  --lent;
  if (engine != nullptr) idle.push_back(std::move(engine));
}

absl::StatusOr<Reading> TesseractReader::Impl::Prepared(const Image8& picture) const {
  OXBOW_RETURN_IF_ERROR(CheckReadable(picture, kReadSideMax));
  const bool small = picture.height < kSmallPictureHeight;
  const int scale = settings.scale > 0 ? settings.scale : (small ? 3 : 1);
  const int margin = settings.margin >= 0 ? settings.margin : (small ? 12 : 0);
  const int width = picture.width * scale;
  const int height = picture.height * scale;
  if (std::max(width, height) + 2 * margin > kReadSideMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("picture is too large to be read: ", width + 2 * margin, " x ",
                     height + 2 * margin, " enlarged and with its margin, over ", kReadSideMax));
  }
  const int page_mode = settings.page_mode > 0 ? settings.page_mode : (small ? 7 : 3);
  if (scale == 1 && margin == 0) return Reading{picture, page_mode};
  Image8 enlarged = Framed(
      reward::ResizeAsPillow(picture, width, height, reward::ResizeKernel::kBilinear), margin);
  return Reading{std::move(enlarged), page_mode};
}

absl::StatusOr<std::unique_ptr<TesseractReader>> TesseractReader::Create(
    TesseractSettings settings) {
  OXBOW_RETURN_IF_ERROR(CheckTesseract(settings));
  auto impl = std::make_unique<Impl>();
  impl->settings = std::move(settings);
  absl::StatusOr<std::string> data = ReadFile(DataPath(impl->settings));
  if (!data.ok()) {
    return absl::Status(data.status().code(),
                        absl::StrCat("cannot read Tesseract's data (install tesseract-ocr-eng, or "
                                     "set TESSDATA_PREFIX): ",
                                     data.status().message()));
  }
  impl->data = *std::move(data);
  const TesseractSettings& s = impl->settings;
  impl->identity = absl::StrCat("tesseract ", Engine::Version(), " ", kLanguage, " ",
                                Sha256Hex(impl->data).substr(0, 16), " page_mode=", s.page_mode,
                                " scale=", s.scale, " margin=", s.margin,
                                " characters=", s.characters.empty() ? "all" : s.characters);
  impl->engines_max = s.engines > 0 ? s.engines : std::min(UsableThreads(), kEnginesMax);
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<Engine> first, impl->NewEngine());
  {
    absl::MutexLock lock(&impl->mutex);
    impl->idle.push_back(std::move(first));
  }
  return std::unique_ptr<TesseractReader>(new TesseractReader(std::move(impl)));
}

TesseractReader::TesseractReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TesseractReader::~TesseractReader() = default;

const std::string& TesseractReader::identity() const { return impl_->identity; }
int TesseractReader::engines() const { return impl_->engines_max; }

absl::StatusOr<std::string> TesseractReader::Read(const Image8& picture) {
  OXBOW_ASSIGN_OR_RETURN(const Reading reading, impl_->Prepared(picture));
  if (HasOneColour(picture)) return std::string();
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, impl_->Borrow());
  absl::StatusOr<std::string> text = Recognise(*engine, reading, impl_->settings.deadline);
  engine->Clear();
  impl_->GiveBack(std::move(engine));
  return text;
}

std::string TesseractReader::help() const {
  const TesseractSettings& s = impl_->settings;
  if (s.page_mode == 0 && s.scale == 0 && s.margin == -1) {
    return "Tesseract; pictures under 64 px in height are enlarged and read as one line";
  }
  return "Tesseract with settings of its own";
}

}  // namespace oxbow::rewards
