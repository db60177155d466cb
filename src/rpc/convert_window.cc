#include "rpc/convert_window.h"

namespace oxbow::rpc {

bool TrainsFinalLatents(const v1::MethodConfig& method) {
  return method.name() == v1::METHOD_NAME_NFT || method.name() == v1::METHOD_NAME_AWM ||
         method.name() == v1::METHOD_NAME_V_GRPO;
}

}  // namespace oxbow::rpc
