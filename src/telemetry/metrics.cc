// SPDX-License-Identifier: Apache-2.0
#include "telemetry/metrics.h"

#include <poll.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/build_version.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace oxbow::telemetry {
namespace {

constexpr size_t kRequestBytesMax = 16 << 10;
constexpr absl::Duration kPause = absl::Milliseconds(100);  // After accept has failed.

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily Empty(const exported::Metric& row, MetricType type) {
  MetricFamily family;
  family.name = row.name;
  family.help = row.help;
  family.type = type;
  return family;
}

void Add(double value, const prometheus::Labels& labels, MetricFamily& family) {
  ClientMetric& metric = family.metric.emplace_back();
  for (const auto& [name, label] : labels) metric.label.push_back({name, label});
  (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
}

MetricFamily WithoutLabels(const exported::Metric& row, MetricType type, double value) {
  MetricFamily family = Empty(row, type);
  Add(value, {}, family);
  return family;
}

// The fields of /proc/self/stat from the third on (state, ppid, ...): the second, the program's
// name, may hold spaces. Empty if the file cannot be read.
std::vector<std::string> StatFields() {
  std::ifstream in("/proc/self/stat");
  std::string line;
  std::getline(in, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

// Unix time at which the machine started.
std::optional<double> BootTime() {
  std::ifstream in("/proc/stat");
  for (std::string word; in >> word;) {
    double seconds = 0;
    if (word == "btime" && in >> seconds) return seconds;
  }
  return std::nullopt;
}

// proc(5): utime, stime and starttime in clock ticks, rss in pages.
void AppendProcess(std::vector<MetricFamily>& families) {
  const std::vector<std::string> fields = StatFields();
  if (fields.size() < 22) return;
  const auto number = [&](size_t field) { return std::stod(fields[field - 3]); };
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  families.push_back(WithoutLabels(exported::kProcessResidentMemoryBytes, MetricType::Gauge,
                                   number(24) * static_cast<double>(::sysconf(_SC_PAGESIZE))));
  families.push_back(WithoutLabels(exported::kProcessCpuSecondsTotal, MetricType::Counter,
                                   (number(14) + number(15)) / ticks));
  if (const std::optional<double> boot = BootTime()) {
    families.push_back(WithoutLabels(exported::kProcessStartTimeSeconds, MetricType::Gauge,
                                     *boot + number(22) / ticks));
  }
}

void AppendDisks(const std::map<std::string, std::filesystem::path>& disks,
                 std::vector<MetricFamily>& families) {
  MetricFamily available = Empty(exported::kDiskAvailableBytes, MetricType::Gauge);
  MetricFamily size = Empty(exported::kDiskSizeBytes, MetricType::Gauge);
  for (const auto& [use, directory] : disks) {
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(directory, error);
    if (error) continue;
    Add(static_cast<double>(space.available), {{"use", use}}, available);
    Add(static_cast<double>(space.capacity), {{"use", use}}, size);
  }
  if (available.metric.empty()) return;
  families.push_back(available);
  families.push_back(size);
}

void AppendRefusedCalls(std::vector<MetricFamily>& families) {
  const RefusedCalls::ByMethodAndReason counts = RefusedCalls::This().counts();
  if (counts.empty()) return;
  MetricFamily refused = Empty(exported::kRpcRefusedTotal, MetricType::Counter);
  for (const auto& [what, count] : counts) {
    Add(static_cast<double>(count), {{"method", what.first}, {"reason", what.second}}, refused);
  }
  families.push_back(refused);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(const std::string& address,
                                                              const Options& options,
                                                              std::function<std::string()> page) {
  OXBOW_ASSIGN_OR_RETURN(ListeningSockets sockets, Listen(address));
  return std::unique_ptr<PageServer>(new PageServer(std::move(sockets), options, std::move(page)));
}

PageServer::PageServer(ListeningSockets sockets, const Options& options,
                       std::function<std::string()> page)
    : options_(options),
      page_(std::move(page)),
      sockets_(std::move(sockets)),
      ended_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Loop(); }) {}

PageServer::~PageServer() {
  const uint64_t one = 1;
  OXBOW_CHECK(::write(ended_.value, &one, sizeof one) == sizeof one) << "wake the page server";
  thread_.join();
}

void PageServer::Loop() {
  bool accepts = true;
  while (true) {
    std::vector<pollfd> polled = {{.fd = ended_.value, .events = POLLIN, .revents = 0}};
    for (const Descriptor& socket : sockets_.sockets) {
      polled.push_back({.fd = accepts ? socket.value : -1, .events = POLLIN, .revents = 0});
    }
    absl::Duration until = absl::InfiniteDuration();
    if (!accepts) until = Clock::Steady().Now() + kPause;
    for (const Connection& one : connections_) {
      const short events = one.answered ? POLLOUT : POLLIN;
      polled.push_back({.fd = one.socket.value, .events = events, .revents = 0});
      until = std::min(until, one.end);
    }
    int wait_ms = -1;  // For ever.
    if (until != absl::InfiniteDuration()) {
      const absl::Duration left = until - Clock::Steady().Now();
      wait_ms = static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(left) + 1));
    }
    ::poll(polled.data(), polled.size(), wait_ms);
    if (polled[0].revents != 0) return;
    size_t index = 1 + sockets_.sockets.size();
    for (auto one = connections_.begin(); one != connections_.end(); ++index) {
      const bool over =
          Clock::Steady().Now() >= one->end || (polled[index].revents != 0 && !Serve(*one));
      one = over ? connections_.erase(one) : std::next(one);
    }
    accepts = true;
    for (size_t i = 0; i < sockets_.sockets.size(); ++i) {
      if (polled[1 + i].revents != 0) accepts = Accept(sockets_.sockets[i].value) && accepts;
    }
  }
}

// False if no connection can be taken for a while.
bool PageServer::Accept(int socket) {
  Descriptor accepted(::accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.value < 0) return errno != EMFILE && errno != ENFILE && errno != ENOBUFS;
  if (connections_.size() >= options_.connections_max) connections_.pop_front();
  connections_.push_back({.socket = std::move(accepted),
                          .end = Clock::Steady().Now() + options_.time_max,
                          .request = "",
                          .answer = ""});
  return true;
}

// Reads or writes what is possible now. False when the connection is over.
bool PageServer::Serve(Connection& connection) const {
  while (!connection.answered) {
    char bytes[4096];
    const ssize_t count = ::recv(connection.socket.value, bytes, sizeof bytes, 0);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    connection.request.append(bytes, static_cast<size_t>(count));
    if (absl::StrContains(connection.request, "\r\n\r\n")) {
      connection.answer = AnswerTo(connection.request);
      connection.answered = true;
    } else if (connection.request.size() > kRequestBytesMax) {
      return false;
    }
  }
  while (!connection.answer.empty()) {
    const ssize_t count = ::send(connection.socket.value, connection.answer.data(),
                                 connection.answer.size(), MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    connection.answer.erase(0, static_cast<size_t>(count));
  }
  return false;
}

std::string PageServer::AnswerTo(const std::string& request) const {
  const std::string line = request.substr(0, request.find("\r\n"));
  const std::string wanted = absl::StrCat("GET ", options_.path);
  const bool known = absl::StartsWith(line, absl::StrCat(wanted, " ")) ||
                     absl::StartsWith(line, absl::StrCat(wanted, "?"));
  const bool root = absl::StartsWith(line, "GET / ");  // For a person with a browser.
  std::string body = absl::StrCat("only ", wanted, " is served\n");
  if (known) body = page_();
  if (root) body = absl::StrCat("<a href=\"", options_.path, "\">", options_.path, "</a>\n");
  return absl::StrCat("HTTP/1.1 ", known || root ? "200 OK" : "404 Not Found", "\r\nContent-Type: ",
                      known  ? options_.content_type
                      : root ? "text/html"
                             : "text/plain",
                      "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
}

RefusedCalls& RefusedCalls::This() {
  static RefusedCalls& counts = *new RefusedCalls;  // Never destroyed: threads may outlive main.
  return counts;
}

void RefusedCalls::Add(const std::string& method, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  ++counts_[{method, reason}];
}

RefusedCalls::ByMethodAndReason RefusedCalls::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

void ProcessMetrics::WatchDisk(const std::string& use, const std::filesystem::path& directory) {
  absl::MutexLock lock(&mutex_);
  disks_[use] = directory;
}

std::vector<MetricFamily> ProcessMetrics::Collect() const {
  std::vector<MetricFamily> families;
  AppendProcess(families);
  AppendRefusedCalls(families);
  absl::MutexLock lock(&mutex_);
  AppendDisks(disks_, families);
  return families;
}

Metrics::Metrics() = default;

Metrics::~Metrics() = default;

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::Serve(const std::string& listen) {
  std::unique_ptr<Metrics> metrics(new Metrics);
  Metric(metrics->registry_, exported::kBuildInfo, {{"version", BuildVersion()}}).Set(1);
  auto server = PageServer::Start(listen, {}, [page = metrics.get()] { return page->Text(); });
  if (!server.ok()) {
    return absl::UnavailableError(absl::StrCat("metrics: ", server.status().message()));
  }
  metrics->server_ = *std::move(server);
  const std::string address = WithBrackets(listen);
  metrics->endpoint_ =
      absl::StrCat(address.substr(0, address.rfind(':')), ":", metrics->server_->port());
  return metrics;
}

void Metrics::BeforeScrape(std::function<void()> call) {
  absl::MutexLock lock(&mutex_);
  before_scrape_ = std::move(call);
}

std::string Metrics::Text() const {
  {
    absl::MutexLock lock(&mutex_);
    if (before_scrape_ != nullptr) before_scrape_();
  }
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  for (prometheus::MetricFamily& family : process_.Collect()) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

std::string ScrapeText(const prometheus::Registry& registry) {
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace oxbow::telemetry
