"""Every training-free method on one table: one encoder, seven STS tasks, all methods fitted on the same sentences.

Command: `python -m eval.sts --config configs/methods.py --config.data_dir=DIR`. Another encoder:
`--config.model=NAME --config.poolings=first_last_avg`. TIME_AND_SCORE
"""

from ml_collections import ConfigDict

from configs import sts


def get_config() -> ConfigDict:
    """The methods beside the β/γ family (target with γ = 1 is whitening, with γ = 0 PCA), with geometry and cost."""
    config = sts.get_config()
    config.update(
        {
            "poolings": "mean",
            "whitening": "none,target",
            "ks": "0",
            "beta": "1",
            "gamma": "1,0.5,0",
            "methods": (
                "centre,zscore,all-but-the-top,zca,cholesky,shrunk-whitening,random-projection,"
                "mutual-proximity,mutual-proximity-gauss,local-scaling,bert-flow"
            ),
            "geometry": True,
            "out": "runs/methods",
        }
    )
    return config
