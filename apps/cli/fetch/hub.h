// Fetching from a model hub over its public HTTP protocol (the one huggingface_hub speaks).
//
// GET  <endpoint>/api/models/<repo>/revision/<rev>?blobs=true   commit, files, licence
// HEAD <endpoint>/<repo>/resolve/<commit>/<file>                X-Repo-Commit, X-Linked-Etag, X-Linked-Size or ETag, Content-Length
// GET  the same                                                 the bytes, through a redirect to another host for large files
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "fetch/place.h"
#include "fetch/source.h"
#include "verb.h"

namespace slm::cli {

struct HubOptions {
  std::string endpoint;  // "https://host", no slash at the end
  std::string token;     // empty: none
  int stall_seconds = 30;
  int attempts = 5;
};

// HF_ENDPOINT, else the public hub.
std::string HubEndpoint(const std::function<const char*(const char*)>& get);

// HF_TOKEN, HUGGING_FACE_HUB_TOKEN, or the file HF_TOKEN_PATH, $HF_HOME/token, ~/.cache/huggingface/token. Empty: none.
// Errors: kInvalidArgument when what is there cannot be a token (blanks or control characters inside).
Result<std::string> HubToken(const std::function<const char*(const char*)>& get);

// Brings the files of `source` into the store as `name`. Errors: those of DownloadFile and ChooseModelFiles; kCorrupt for an
// answer that breaks the protocol or names files outside the model's folder; kIo when the disk is too small.
Result<Fetched> FetchFromHub(Io& io, const HubSource& source, const std::string& name, const HubOptions& options);

}  // namespace slm::cli
