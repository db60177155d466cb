#include "telemetry/metrics.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <prometheus/exposer.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "telemetry/families.h"

namespace oxbow::telemetry {
namespace {

void Knock(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  (void)::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::close(descriptor);
}

}  // namespace

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      process_(std::make_shared<ProcessMetrics>()) {}

// The web server notices that it should end only when its poll returns, after up to two seconds. A
// connection makes it return; this knocks until the end is through.
Metrics::~Metrics() {
  if (exposer_ == nullptr) return;
  absl::Notification ended;
  std::thread stopper([&] {
    exposer_.reset();
    ended.Notify();
  });
  while (!ended.WaitForNotificationWithTimeout(absl::Milliseconds(20))) Knock(port_);
  stopper.join();
}

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::Serve(const std::string& listen) {
  std::unique_ptr<Metrics> metrics(new Metrics);
  try {
    metrics->exposer_ = std::make_unique<prometheus::Exposer>(listen, /*num_threads=*/1);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics: ", error.what(), ": ", listen));
  }
  const std::vector<int> ports = metrics->exposer_->GetListeningPorts();
  const std::string host = listen.substr(0, listen.rfind(':'));
  metrics->port_ = ports.empty() ? 0 : ports.front();
  metrics->endpoint_ = absl::StrCat(host, ":", ports.empty() ? 0 : ports.front());
  metrics->exposer_->RegisterCollectable(metrics->registry_);
  metrics->exposer_->RegisterCollectable(metrics->process_);
  Metric(*metrics->registry_, exported::kBuildInfo, {{"version", OXBOW_VERSION}}).Set(1);
  return metrics;
}

std::string ScrapeText(const prometheus::Registry& registry) {
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace oxbow::telemetry
