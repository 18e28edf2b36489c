// Greedy ids of llama.cpp for prompts given as ids, with the gap between the two best logits of each step: the other side of
// tools/compare_greedy.py. Built against a llama.cpp tree that the user has; not part of the product.
//
//   g++ -O2 -std=c++17 -I LLAMA/include -I LLAMA/ggml/include tools/peer_greedy.cc -o peer_greedy <libllama and ggml libraries>
//   peer_greedy MODEL.gguf N_TOKENS N_THREADS < prompts     (one prompt a line: ids separated by spaces)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <vector>

#include "llama.h"

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: peer_greedy MODEL N_TOKENS N_THREADS < prompts\n"), 2;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params mp = llama_model_default_params();
  llama_model* model = llama_model_load_from_file(argv[1], mp);
  if (!model) return std::fprintf(stderr, "cannot load %s\n", argv[1]), 1;
  llama_context_params cp = llama_context_default_params();
  cp.n_ctx = 1024;
  cp.n_threads = cp.n_threads_batch = std::atoi(argv[3]);
  cp.type_k = cp.type_v = GGML_TYPE_F32;
  cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* ctx = llama_init_from_model(model, cp);
  const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::vector<llama_token> tokens;
    for (llama_token t; in >> t;) tokens.push_back(t);
    llama_memory_clear(llama_get_memory(ctx), true);
    std::vector<llama_token> next;
    std::string ids, gaps;
    for (int i = 0; i < std::atoi(argv[2]); ++i) {
      std::vector<llama_token>& feed = i == 0 ? tokens : next;
      if (llama_decode(ctx, llama_batch_get_one(feed.data(), static_cast<int>(feed.size())))) return 1;
      const float* l = llama_get_logits_ith(ctx, -1);
      const int best = static_cast<int>(std::max_element(l, l + n_vocab) - l);
      float second = -1e30f;
      for (int v = 0; v < n_vocab; ++v)
        if (v != best) second = std::max(second, l[v]);
      char gap[32];
      std::snprintf(gap, sizeof gap, "%s%.5f", i ? "," : "", static_cast<double>(l[best] - second));
      ids += (i ? "," : "") + std::to_string(best);
      gaps += gap;
      next = {best};
    }
    std::printf("{\"ids\":[%s],\"gaps\":[%s]}\n", ids.c_str(), gaps.c_str());
  }
  llama_free(ctx);
  llama_model_free(model);
}
