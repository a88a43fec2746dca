"""A twin per capability: who makes its data, and the program, written by hand, that solves it."""

from __future__ import annotations

from benchmarks.adapters.slidequest_twins import images, tables, zero_shot
from benchmarks.adapters.slidequest_twins.twin import Twin

WRITE = "import json\ndef answer(**values):\n    json.dump([values], open('answer.json', 'w'))\n"
"""Begins every program."""

_PD = "import pandas as pd\n"
_NP = "import numpy as np\n"
_IMG = "import numpy as np\nfrom PIL import Image\n"
_NUCLEI = (
    "found = segment_and_classify_nuclei_in_histology_roi_tool(input_dir='/inputs/data/images',"
    " level0_mpp_of_imgs=0.5)\nheld = json.load(open(found['jsons'][0]))['nuc']\n"
    "kinds = [str(n['type']) for n in held.values()]\n"
)
_MIL = (
    "clean = prepare_wsi_classification_metadata(metadata_path='/inputs/data/labels.csv',"
    " label_column='status')\n"
    "split = create_wsi_classification_splits("
    "cleaned_metadata_path=clean['cleaned_metadata_path'], label_column='status', n_folds=3)\n"
    "done = train_test_wsi_classification_mil_model(splits_path=split['split_metadata_path'],"
    " patch_features_path='/inputs/data/features', label_column='status', head_dim=32,"
    " hidden_dim=16, num_epochs=40, num_folds=3, device='cpu')\n"
)
_EMBED = (
    "import h5py\n"
    "made = call_together([('encode_histology_roi_tool', {'img_path':"
    " f'/inputs/data/images/i{n:02d}.png', 'histology_roi_encoder_name': 'handcrafted',"
    " 'output_dir': 'e'}) for n in range(16)])\nX = []\nfor one in made:\n"
    "    with h5py.File(one['embedding_path']) as f:\n"
    "        X.append(np.ravel(np.asarray(f[list(f)[0]], dtype=float)))\n"
    "X = np.stack(X)\nX = (X - X.mean(0)) / (X.std(0) + 1e-9)\n"
)
_XY = (
    "t = pd.read_csv('/inputs/data/features.csv')\nX = t[[f'f{n}' for n in range(6)]].to_numpy()\n"
    "y = t['label'].to_numpy()\nfrom sklearn.linear_model import LogisticRegression\n"
)
_CLIP = f"clip = dict(weights='/inputs/data/weights', classes={list(zero_shot.KINDS)})\n"
_NAME_PATIENTS = (
    "called = call_together([('score_single_histology_image_using_text_tool', {'image_path':"
    " f'/inputs/data/images/p{p}_{n}.png', **clip}) for p in range(3) for n in range(4)])\n"
    "out = {}\nfor p in range(3):\n"
    "    own = [one['similarity_scores'] for one in called[4 * p:4 * p + 4]]\n"
    "    out[f'p{p}'] = max(clip['classes'], key=lambda k: sum(one[k] for one in own))\n"
    "answer(**out)\n"
)
_NAME_SLIDES = (
    "out = {}\nfor n in range(3):\n    s = dict(wsi_path=f'/inputs/data/s{n}.tiff')\n"
    "    extract_tissue_in_wsi_tool(**s)\n    extract_tissue_tiles_in_wsi_tool(tile_px=224, **s)\n"
    "    extract_patch_features_in_wsi_tool(model='plip', weights=clip['weights'], **s)\n"
    "    out[f's{n}'] = predict_wsi_label_tool(**s, **clip)['predicted_class']\n"
    "answer(**out)\n"
)


TWINS: tuple[Twin, ...] = (
    Twin("WSI metadata retrieval", images.slide_of_some_size, (
        "p = retrieve_properties_from_wsi_tool(wsi_path='/inputs/data/slide.tiff')\n"
        "answer(width=p['base_width'], height=p['base_height'], mpp=p['base_mpp'],"
        " levels=p['n_levels'])\n"), 0.001),
    Twin("WSI reading", images.colored_square, _IMG + (
        "w = json.load(open('/inputs/data/where.json'))\n"
        "r = read_rectangle_region_from_wsi_tool(wsi_path='/inputs/data/slide.tiff', region={"
        "'top_left_x': w['x'], 'top_left_y': w['y'], 'base_width': w['side'],"
        " 'base_height': w['side']})\n"
        "m = np.asarray(Image.open(r['region_save_path']).convert('RGB')).mean((0, 1))\n"
        "answer(red=m[0], green=m[1], blue=m[2])\n")),
    Twin("WSI patching", images.tissue_of_tiles, (
        "s = dict(wsi_path='/inputs/data/slide.tiff')\nt = extract_tissue_in_wsi_tool(**s)\n"
        "n = extract_tissue_tiles_in_wsi_tool(tile_px=256, mpp=0.5, **s)\n"
        "answer(tiles=n['num_patches'], tissue_mm2=t['total_area_mm2'])\n")),
    Twin("tissue segmentation", images.tissue, (
        "t = extract_tissue_in_wsi_tool(wsi_path='/inputs/data/slide.tiff')\n"
        "answer(tissue_mm2=t['total_area_mm2'])\n")),
    Twin("image reading", images.three_images, _IMG + (
        "held = {n: np.asarray(Image.open(f'/inputs/data/{n}.png')) for n in 'abc'}\n"
        "d = min(held, key=lambda n: held[n].mean())\n"
        "answer(darkest=d, mean=float(held[d].mean()), height=held[d].shape[0])\n")),
    Twin("CSV reading", tables.filtered, _PD + (
        "t = pd.read_csv('/inputs/data/table.csv')\n"
        "t = t[(t['stage'] == 'II') & (t['age'] > 60)]\n"
        "answer(patients=len(t), mean_area=float(t['area'].mean()))\n")),
    Twin("summary statistics", tables.summary, _PD + (
        "t = pd.read_csv('/inputs/data/table.csv')\na = t['area']\n"
        "answer(mean=a.mean(), sd=a.std(), median=a.median(),"
        " most_common_stage=t['stage'].mode()[0])\n")),
    Twin("embeddings reading", tables.embeddings, _NP + (
        "import h5py\nwith h5py.File('/inputs/data/slide.h5') as f:\n    x = f['features'][:]\n"
        "answer(patches=len(x), mean_norm=float(np.linalg.norm(x, axis=1).mean()))\n")),
    Twin("texture analysis", images.texture, _IMG + (
        "from skimage.feature import graycomatrix, graycoprops\n"
        "x = np.asarray(Image.open('/inputs/data/texture.png')) // 32\n"
        "g = graycomatrix(x, [1], [0], levels=8, symmetric=True, normed=True)\n"
        "answer(contrast=float(graycoprops(g, 'contrast')[0, 0]))\n")),
    Twin("image filtering", images.noisy_discs, _IMG + (
        "import cv2\nx = cv2.medianBlur(np.asarray(Image.open('/inputs/data/noisy.png')), 5)\n"
        "x = cv2.medianBlur(x, 5)\n"
        "n, _, stats, _ = cv2.connectedComponentsWithStats((x < 140).astype('uint8'))\n"
        "answer(discs=int((stats[1:, 4] > 200).sum()))\n")),
    Twin("stain estimation", images.two_stains, _IMG + (
        "x = np.asarray(Image.open('/inputs/data/he.png'), dtype=float).reshape(-1, 3)\n"
        "d = -np.log10((x + 1) / 256)\nd = d[d.sum(1) > 0.3]\n"
        "_, v = np.linalg.eigh(np.cov(d.T))\nv = v[:, [2, 1]]\nv = v * np.sign(v.sum(0))\n"
        "v[:, 0] *= np.sign(v[:, 0].sum())\na = np.arctan2(d @ v[:, 1], d @ v[:, 0])\n"
        "ends = [v @ [np.cos(q), np.sin(q)] for q in np.percentile(a, [1, 99])]\n"
        "h = max(ends, key=lambda e: e[0] / np.linalg.norm(e))\nh = h / np.linalg.norm(h)\n"
        "answer(hematoxylin_red=h[0], hematoxylin_green=h[1], hematoxylin_blue=h[2])\n")),
    Twin("morphometry", tables.contour, (
        "c = json.load(open('/inputs/data/contour.json'))\n"
        "a, p = call_together([('get_contour_area', {'contour': c}),"
        " ('get_contour_perimeter', {'contour': c})])\n"
        "answer(area=a['contour_area'], perimeter=p['contour_perimeter'])\n")),
    Twin("spatial calibration", images.square_on_slide, (
        "p = retrieve_properties_from_wsi_tool(wsi_path='/inputs/data/slide.tiff')\n"
        "s = json.load(open('/inputs/data/square.json'))['side_px']\nm = p['base_mpp']\n"
        "answer(area_um2=(s * m) ** 2, crop_px_at_10x=512 / m)\n")),
    Twin("scalar calculation", images.square_on_slide, (
        "p = retrieve_properties_from_wsi_tool(wsi_path='/inputs/data/slide.tiff')\n"
        "s = json.load(open('/inputs/data/square.json'))['side_px']\nm = p['base_mpp']\n"
        "answer(area_um2=s * s * m * m, crop_px_at_10x=512 * 1.0 / m)\n")),
    Twin("distance computation", tables.cells, _PD + (
        "from scipy.spatial import cKDTree\nt = pd.read_csv('/inputs/data/cells.csv')\n"
        "a, b = (t[t['type'] == k][['x', 'y']].to_numpy() for k in ('tumor', 'lymphocyte'))\n"
        "answer(mean_nearest=float(cKDTree(b).query(a)[0].mean()))\n")),
    Twin("statistical analysis", tables.groups, _PD + (
        "from scipy.stats import mannwhitneyu\nt = pd.read_csv('/inputs/data/groups.csv')\n"
        "p = {n: mannwhitneyu(t[t['group'] == 'mut'][n], t[t['group'] == 'wt'][n]).pvalue"
        " for n in ('area', 'solidity', 'density')}\nanswer(differs=min(p, key=p.get))\n")),
    Twin("cross-validation", tables.labelled, _PD + _XY + (
        "from sklearn.model_selection import cross_val_score\n"
        "answer(accuracy=float(cross_val_score(LogisticRegression(), X, y, cv=5).mean()))\n")),
    Twin("supervised learning", tables.labelled, _PD + _XY + (
        "tr = (t['part'] == 'train').to_numpy()\nm = LogisticRegression().fit(X[tr], y[tr])\n"
        "answer(accuracy=float(m.score(X[~tr], y[~tr])))\n")),
    Twin("model evaluation", tables.scored, _PD + (
        "from sklearn.metrics import roc_auc_score\nt = pd.read_csv('/inputs/data/scores.csv')\n"
        "answer(auc=float(roc_auc_score(t['label'], t['score'])))\n"), 0.01),
    Twin("multiple-instance learning", tables.bags, _MIL + "answer(auc=done['mean_auc'])\n"),
    Twin("attention-based patch retrieval", tables.bags_with_planted_patches, (
        _NP + _MIL.replace("epochs=40", "epochs=20") +
        "import h5py\nhits = []\nfor path in done['attention']:\n"
        "    number = int(path.rsplit('/s', 1)[1][:-3])\n    if number % 2:\n"
        "        with h5py.File(path) as f:\n            w = np.ravel(f['attention_scores'][:])\n"
        "        hits += [int(i in (4, 5, 6)) for i in np.argsort(-w)[:3]]\n"
        "answer(share_of_top_patches_planted=float(np.mean(hits)))\n")),
    Twin("nuclei segmentation", images.nuclei, _NUCLEI + "answer(nuclei=len(kinds))\n"),
    Twin("nuclei detection", images.nuclei, _NUCLEI + "answer(nuclei=len([n['centroid'] for n in"
         " held.values()]))\n"),
    Twin("nuclei cell type classification", images.nuclear_types, _NUCLEI.replace(
        "level0_mpp_of_imgs=0.5", "level0_mpp_of_imgs=0.5, weights='/inputs/data/typed.pt',"
        " scaling='unit'") + (
        "print(set(kinds), found['classes'])\nnames = found['classes']\n"
        "kinds = [names[int(k)] if k.isdigit() and int(k) < len(names) else k for k in kinds]\n"
        "answer(neoplastic_share=kinds.count('Neoplastic') / max(1, len(kinds)),"
        " inflammatory_share=kinds.count('Inflammatory') / max(1, len(kinds)))\n"), weights=True),
    Twin("artefact segmentation", images.pen, _IMG + (
        "x = np.asarray(Image.open('/inputs/data/pen.png')).astype(int)\n"
        "answer(pen_px=int(((x[..., 2] > x[..., 0] + 60) & (x[..., 0] < 120)).sum()))\n")),
    Twin("patch embedding", images.like_the_first, _NP + _EMBED + (
        "from sklearn.cluster import KMeans\n"
        "k = KMeans(2, n_init=10, random_state=0).fit_predict(X)\n"
        "answer(like_the_first=int((k == k[0]).sum()))\n")),
    Twin("few-shot learning", images.few_known, _PD + _NP + _EMBED + (
        "known = pd.read_csv('/inputs/data/known.csv')\n"
        "at = [int(n[1:]) for n in known['image']]\nfrom sklearn.neighbors import"
        " KNeighborsClassifier\nm = KNeighborsClassifier(1).fit(X[at], known['kind'])\n"
        "answer(dense=int((m.predict(X) == 'dense').sum()))\n")),
    Twin("WSI embedding", images.odd_slide, _NP + (
        "import h5py\nE = []\nfor n in range(3):\n"
        "    s = dict(wsi_path=f'/inputs/data/s{n}.tiff')\n    extract_tissue_in_wsi_tool(**s)\n"
        "    extract_tissue_tiles_in_wsi_tool(tile_px=224, **s)\n"
        "    extract_patch_features_in_wsi_tool(model='handcrafted', **s)\n"
        "    e = encode_wsi_tool(slide_encoder='mean', **s)\n"
        "    with h5py.File(e['features_path']) as f:\n"
        "        E.append(np.ravel(np.asarray(f[list(f)[0]], dtype=float)))\n"
        "E = np.stack(E)\nE = (E - E.mean(0)) / (E.std(0) + 1e-9)\n"
        "d = np.linalg.norm(E[:, None] - E[None], axis=2).sum(1)\n"
        "answer(odd_one=f's{int(d.argmax())}')\n")),
    Twin("survival modelling", tables.survival, _PD + (
        "from lifelines import CoxPHFitter\nt = pd.read_csv('/inputs/data/survival.csv')\n"
        "m = CoxPHFitter().fit(t, 'days', 'event')\n"
        "answer(hazard_ratio=float(m.hazard_ratios_['exposed']))\n")),
    Twin("clustering", tables.points, _PD + _NP + (
        "from sklearn.cluster import KMeans\nt = pd.read_csv('/inputs/data/points.csv')\n"
        "n = np.bincount(KMeans(3, n_init=10, random_state=0).fit_predict(t))\n"
        "answer(smallest=int(n.min()), largest=int(n.max()))\n"), 0.001),
    Twin("problem solving", images.turned_copy, _IMG + (
        "held = [np.asarray(Image.open(f'/inputs/data/i{n}.png')) for n in range(6)]\n"
        "same = [n for n in range(1, 6) if any((np.rot90(held[0], k) == held[n]).all()"
        " for k in range(1, 4))]\nanswer(copy_of_i0=f'i{same[0]}')\n")),
    Twin("zero-shot WSI interpretation", zero_shot.slides_to_name, _CLIP + _NAME_SLIDES,
         weights=True),
    Twin("zero-shot multi-patch interpretation", zero_shot.patients_to_name,
         _CLIP + _NAME_PATIENTS, weights=True),
)  # fmt: skip
"""One per capability of SlideQuest's notes; the six labels of nuclear types are one."""
