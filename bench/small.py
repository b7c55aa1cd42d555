"""Small networks of every family that `transformers` has a sequence classifier of, as data.

Each family takes those of the sizes below that its configuration knows, and a few of its own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tokenizers
import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

WORDS = (
    *("the", "a", "film", "plot", "good", "bad", "great", "slow", "very", "not", "and", "but"),
    *("is", "was", "it", "story", "actor", "scene", "dull", "fresh", ",", "."),
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES: dict[str, Any] = {
    # width
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embedding_size", "dim", "d_embed"), 32),
    **dict.fromkeys(("emb_dim", "word_embed_proj_dim", "embed_dim"), 32),
    # layers, heads, and the width of a head
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 3),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 3),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    "num_key_value_heads": 2,
    **dict.fromkeys(("head_dim", "d_kv", "global_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    "rotary_dim": 4,
    # behind attention
    **dict.fromkeys(("intermediate_size", "n_inner", "d_ff", "d_inner", "hidden_dim"), 48),
    **dict.fromkeys(("ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "dff"), 48),
    **dict.fromkeys(("n_routed_experts", "num_experts", "num_local_experts"), 4),
    "num_experts_per_tok": 2,
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    **dict.fromkeys(("first_k_dense_replace", "n_group", "topk_group"), 1),
    # texts and labels
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"), 128),
    "sliding_window": 16,
    "type_vocab_size": 2,
    "hidden_dropout": 0.0,
}
LATENT = {"num_key_value_heads": 4, "head_dim": 8}  # heads that share a latent vector
MAMBA = {"mamba_d_state": 4, "mamba_dt_rank": 2, "mamba_n_heads": 4, "n_mamba_heads": 4}
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
LINEAR |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
HYBRID = ["linear_attention", "full_attention", "full_attention"]
GEMMA = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 8}
GEMMA |= {"num_key_value_heads": 2, "intermediate_size": 48, "sliding_window": 16}
OVERRIDES: dict[str, dict[str, Any]] = {
    "axk1": LATENT,
    "axk2": LATENT,
    "big_bird": {"block_size": 4, "num_random_blocks": 1},
    "bigbird_pegasus": {"block_size": 4, "num_random_blocks": 1},
    "canine": {"num_hash_buckets": 64, "local_transformer_stride": 16},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}
    },
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "esmc": {"num_key_value_heads": 4},
    "falcon": {"head_dim": None},
    "funnel": {"num_hidden_layers": None, "block_sizes": [1, 1, 1], "d_head": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1], [["global"], 1]], "window_size": 4},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, **MAMBA},
    "layoutlmv3": {"visual_embed": False, "coordinate_size": 5, "shape_size": 6},
    "lilt": {"hidden_size": 48, "channel_shrink_ratio": 2, "head_dim": None},
    "longformer": {"attention_window": [4, 4, 4]},
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 8},
    "minicpm3": LATENT,
    "mistral4": {
        **LATENT,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 64,
        },
    },
    "perceiver": {"num_latents": 6, "d_latents": 32, "num_self_attends_per_block": 2},
    "qwen3_5_text": {"layer_types": HYBRID, **LINEAR},
    "qwen3_next": {"layer_types": HYBRID, **LINEAR},
    "reformer": {
        "axial_pos_embds_dim": [8, 24],
        "axial_pos_shape": [8, 16],
        "feed_forward_size": 48,
        "attn_layers": ["local", "lsh"],
        "attention_head_size": 8,
        "num_hidden_layers": None,
        "is_decoder": False,
        "lsh_attn_chunk_length": 4,
        "local_attn_chunk_length": 4,
    },
    "roc_bert": {"enable_pronunciation": False, "enable_shape": False},
    "t5": {"decoder_start_token_id": 0},
    "t5gemma": {"encoder": GEMMA, "decoder": GEMMA},
    "xlnet": {"max_position_embeddings": None, "n_positions": None},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
        "num_key_value_heads": 4,
        "head_dim": None,
        "attention_head_dim": 16,
        **MAMBA,
    },
    "zamba2": {
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention"],
        "num_key_value_heads": 4,
        "head_dim": None,
        "attention_head_dim": 16,
        "mamba_d_state": 4,
        "n_mamba_heads": 4,
        "mamba_ngroups": 1,
        "mamba_headdim": 16,
    },
}
SCALES = {"mobilebert": 0.08}  # it has no norms that would keep large weights in bounds
NOT_TEXT = "takes images beside text"
LEFT_OUT = {
    "gemma3": NOT_TEXT,
    "layoutlmv2": NOT_TEXT,
    "modernvbert": NOT_TEXT,
    "qwen3_5": NOT_TEXT,
    "t5gemma2": NOT_TEXT,
    "tapas": "takes tables beside text",
    "ultravbert": NOT_TEXT,
}
FAMILIES = [f for f in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES if f not in LEFT_OUT]


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of whole words, with the special tokens of BERT."""
    vocabulary = {name: i for i, name in enumerate((*SPECIAL, *WORDS))}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=96,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name}_token": token for name, token in names.items()},
    )


def config(family: str, **more: Any) -> Any:
    """The configuration of a small network."""
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "num_labels": 3}
    ids["vocab_size"] = len(tokenizer())
    default = AutoConfig.for_model(family)
    sizes = {name: size for name, size in SIZES.items() if hasattr(default, name)}
    options = ids | sizes | OVERRIDES.get(family, {}) | more
    given = {name: value for name, value in options.items() if value is not None}
    return AutoConfig.for_model(family, **given)


def network(family: str, seed: int = 0, **more: Any) -> PreTrainedModel:
    """A small network with large random weights, so that mistakes show."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = AutoModelForSequenceClassification.from_config(config(family, **more))
        for parameter in built.parameters():
            if parameter.ndim >= 2:
                torch.nn.init.normal_(parameter, std=SCALES.get(family, 0.25))
    return built.eval()
