"""A classifier of premise and hypothesis: softmax over the three classes of NLI.

    JAXWHITEN_DATA_DIR=... python -m train.cross --config configs/cross_nli.py

BERT over a sentence pair (Devlin et al. 2019, section 4.1), on the NLI rows of the data folder without those that share
a sentence with the rows it is tested on. `--config.labels=scores --config.data.name=STS-B --config.dev=STS-B
--config.test="('STS-B',)"` makes it a regression on STS-B.

Seen on 2 CPU cores shared with other work, float32, seed 0: 25,877 rows, one epoch of 808 steps in 10 minutes. Accuracy
on the 2,000 rows of cad_snli/all_combined_test: 33.2 with a new head, 63.0 after; 60.7 on the 1,000 dev rows that
chose the checkpoint. The regression on STS-B, 158 steps in 11 minutes while tests ran: Spearman 77.4 on its test pairs
(dev 83.3), less than the 82.0 that the encoder it started from reaches by the cosine of its vectors.
"""

from configs.settings import Cross


def get_config():
    config = Cross()
    config.data.sources = ("snli_dev_test", "cad_snli/all_combined_train")
    config.dev = "cad_snli/all_combined_dev"
    config.test = ("cad_snli/all_combined_test",)
    config.evaluate_every = 200
    config.output = "runs/cross-nli"
    return config
