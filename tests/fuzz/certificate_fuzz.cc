// SPDX-License-Identifier: Apache-2.0
// For any bytes as a certificate (DER, put into PEM, or PEM as it is): it is refused, or its holder
// has identities that can be written again, and a serial number in hexadecimal.
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rpc/identity.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  const std::string bytes(fuzz::Text(data, size));
  std::string pem = bytes;
  if (bytes.find("-----BEGIN") == bytes.npos) {
    const std::string base64 = absl::Base64Escape(bytes);
    pem = "-----BEGIN CERTIFICATE-----\n";
    for (size_t i = 0; i < base64.size(); i += 64)
      absl::StrAppend(&pem, base64.substr(i, 64), "\n");
    pem += "-----END CERTIFICATE-----\n";
  }
  const auto holder = rpc::HolderOf(pem);
  if (!holder.ok()) {
    OXBOW_CHECK(absl::IsInvalidArgument(holder.status())) << holder.status().ToString();
    return 0;
  }
  for (const rpc::Identity& identity : holder->identities) {
    const auto again = rpc::ParseIdentity(rpc::UriOf(identity));
    OXBOW_CHECK(again.ok() && *again == identity) << rpc::UriOf(identity);
  }
  OXBOW_CHECK(holder->serial.find_first_not_of("0123456789ABCDEF-") == std::string::npos)
      << holder->serial;
  OXBOW_CHECK(!holder->Name().empty());
  (void)rpc::FleetOf(*holder, "");
  return 0;
}
