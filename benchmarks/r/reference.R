# Recreates tests/validation/r: patients of public cohorts and what R computes on them.
#
#   apt-get install r-base-core r-cran-survival r-cran-cmprsk
#   Rscript benchmarks/r/reference.R tests/validation/r
#
# The cohorts come with the R package survival (Therneau, LGPL >= 2). Models: coxph with Efron's
# ties (linear, restricted cubic splines, products, strata, delayed entry, clusters, Firth's penalty
# maximized numerically over coxph's own likelihood and information), cox.zph, crr and cuminc.
# A line of figures.csv is cohort, model, terms, then name=values; `warned` says that R reported a
# coefficient that may be infinite, or a fit that ran out of iterations.
suppressMessages({library(survival); library(cmprsk)})
out <- commandArgs(trailingOnly = TRUE)[1]
dir.create(file.path(out, "cohorts"), recursive = TRUE, showWarnings = FALSE)
exact <- coxph.control(eps = 1e-12, toler.chol = 1e-13, iter.max = 200)

code <- function(x) if (is.numeric(x)) x else as.integer(factor(x))
cohort <- function(d, time, status, columns, cluster = NULL, stratum = NULL) {
  found <- data.frame(time = time, status = status)
  if (!is.null(cluster)) found$cluster <- code(cluster)
  if (!is.null(stratum)) found$stratum <- code(stratum)
  for (name in columns) found[[paste0("x.", name)]] <- round(as.numeric(code(d[[name]])), 4)
  found[found$time > 0, ]
}

recurrence <- subset(colon, etype == 1); death <- subset(colon, etype == 2)
stopifnot(all(recurrence$id == death$id))
first <- subset(cgd, enum == 1)
cohorts <- list(
  lung = cohort(lung, lung$time, lung$status - 1,
                c("age", "sex", "ph.ecog", "ph.karno", "pat.karno", "meal.cal", "wt.loss"),
                stratum = ifelse(is.na(lung$inst), 0, lung$inst)),
  veteran = cohort(veteran, veteran$time, veteran$status,
                   c("trt", "karno", "diagtime", "age", "prior"), stratum = veteran$celltype),
  pbc = cohort(pbc, pbc$time, c(0, 2, 1)[pbc$status + 1],
               c("age", "sex", "ascites", "hepato", "spiders", "edema", "bili", "chol", "albumin",
                 "copper", "alk.phos", "ast", "trig", "platelet", "protime", "stage"),
               stratum = ifelse(is.na(pbc$stage), 0, pbc$stage)),
  gbsg = cohort(gbsg, gbsg$rfstime, gbsg$status,
                c("age", "meno", "size", "grade", "nodes", "pgr", "er", "hormon"),
                stratum = gbsg$grade),
  rotterdam = cohort(rotterdam, with(rotterdam, ifelse(recur == 1, rtime, dtime)),
                     with(rotterdam, ifelse(recur == 1, 1, ifelse(death == 1, 2, 0))),
                     c("age", "nodes", "pgr", "er"), stratum = rotterdam$size),
  colon = cohort(recurrence, ifelse(recurrence$status == 1, recurrence$time, death$time),
                 ifelse(recurrence$status == 1, 1, ifelse(death$status == 1, 2, 0)),
                 c("age", "sex", "obstruct", "perfor", "adhere", "nodes", "differ", "extent",
                   "surg"), stratum = recurrence$rx),
  flchain = cohort(flchain, flchain$futime, flchain$death,
                   c("age", "kappa", "lambda", "creatinine"), stratum = flchain$flc.grp),
  mgus2 = cohort(mgus2, with(mgus2, ifelse(pstat == 1, ptime, futime)),
                 with(mgus2, ifelse(pstat == 1, 1, ifelse(death == 1, 2, 0))),
                 c("age", "sex", "dxyr", "hgb", "creat", "mspike"), stratum = mgus2$sex),
  transplant = cohort(transplant, transplant$futime,
                      c(censored = 0, death = 2, ltx = 1, withdraw = 0)[
                        as.character(transplant$event)],
                      c("age", "sex", "year"), stratum = transplant$abo),
  stanford2 = cohort(stanford2, stanford2$time, stanford2$status, c("age", "t5")),
  ovarian = cohort(ovarian, ovarian$futime, ovarian$fustat, c("age", "resid.ds", "rx", "ecog.ps")),
  udca1 = cohort(udca1, as.numeric(udca1$futime), as.numeric(udca1$status),
                 c("trt", "stage", "bili", "riskscore")),
  kidney = cohort(kidney, kidney$time, kidney$status, c("age", "sex"), cluster = kidney$id,
                  stratum = kidney$disease),
  retinopathy = cohort(retinopathy, retinopathy$futime, retinopathy$status,
                       c("laser", "age", "trt", "risk"), cluster = retinopathy$id,
                       stratum = retinopathy$type),
  rats = cohort(rats, rats$time, rats$status, c("rx", "sex"), cluster = rats$litter,
                stratum = rats$sex),
  cgd = cohort(first, first$tstop - first$tstart, first$status,
               c("treat", "sex", "age", "height", "weight", "inherit", "steroids", "propylac"),
               cluster = first$center, stratum = first$center))

lines <- character()
put <- function(cohort, model, terms, ...) {
  figures <- list(...)
  shown <- vapply(names(figures), function(name) paste0(name, "=", paste(
    formatC(as.numeric(figures[[name]]), digits = 12, format = "g", width = 1), collapse = " ")),
    character(1))
  lines <<- c(lines, paste(c(cohort, model, paste(terms, collapse = " "), shown), collapse = ","))
}

percentiles <- list(`3` = c(10, 50, 90), `4` = c(5, 35, 65, 95),
                    `5` = c(5, 27.5, 50, 72.5, 95)) # Harrell's
rcs <- function(x, knots) { # NULL where the knots coincide
  t <- quantile(x, percentiles[[as.character(knots)]] / 100, type = 7, names = FALSE)
  if (length(unique(t)) < knots) return(NULL)
  cube <- function(k) pmax(x - k, 0)^3
  last <- t[knots]; before <- t[knots - 1]
  bent <- sapply(t[1:(knots - 2)], function(k) (cube(k) - cube(before) * (last - k) /
    (last - before) + cube(last) * (before - k) / (last - before)) / (last - t[1])^2)
  scale(cbind(x, bent))
}

fit <- function(response, X, ...) { # coxph, and whether it warned
  warned <- 0
  found <- withCallingHandlers(coxph(response ~ X, control = exact, ties = "efron", ...),
                               warning = function(w) { warned <<- 1; invokeRestart("muffleWarning") })
  list(fit = found, warned = warned)
}
report <- function(name, model, terms, found, ...) {
  f <- found$fit
  put(name, model, terms, warned = found$warned, coef = coef(f), se = sqrt(diag(f$var)),
      loglik = f$loglik, ...)
}

penalized <- function(response, X, beta) { # Firth's likelihood at beta, from coxph's own parts
  at <- tryCatch(suppressWarnings(coxph(response ~ X, init = beta, ties = "efron",
                                        control = coxph.control(iter.max = 0))),
                 error = function(e) NULL) # far outside: coxph refuses such values
  if (is.null(at)) return(-1e10)
  at$loglik[length(at$loglik)] - 0.5 * as.numeric(determinant(as.matrix(at$var))$modulus)
}
firth <- function(response, X, start = rep(0, ncol(X))) {
  found <- optim(start, function(b) -penalized(response, X, b), method = "BFGS",
                 control = list(reltol = 1e-15, maxit = 500))
  nlm(function(b) -penalized(response, X, b), found$par, gradtol = 1e-9, steptol = 1e-10)
}

for (name in names(cohorts)) {
  d <- cohorts[[name]]
  write.csv(d, gzfile(file.path(out, "cohorts", paste0(name, ".csv.gz"))), row.names = FALSE)
  columns <- grep("^x\\.", names(d), value = TRUE)
  response <- function(rows) Surv(d$time[rows], d$status[rows] == 1)
  for (column in columns) {
    rows <- !is.na(d[[column]]); x <- d[[column]][rows]; X <- cbind(x)
    found <- fit(response(rows), X)
    zph <- tryCatch(cox.zph(found$fit)$table[1, 1], error = function(e) NA)
    report(name, "linear", column, found, score = found$fit$score, zph = zph)
    for (knots in 3:5) {
      basis <- rcs(x, knots)
      if (!is.null(basis)) report(name, paste0("spline", knots), column,
                                  fit(response(rows), basis))
    }
    if ("stratum" %in% names(d)) {
      s <- d$stratum[rows]
      if (!column %in% c("x.stage", "x.grade", "x.sex"))
        report(name, "strata", column, {
          warned <- 0
          f <- withCallingHandlers(
            coxph(response(rows) ~ x + strata(s), control = exact),
            warning = function(w) { warned <<- 1; invokeRestart("muffleWarning") })
          list(fit = f, warned = warned)
        })
    }
    # Patients in clusters: the declared ones, or runs of three rows.
    cluster <- if ("cluster" %in% names(d)) d$cluster[rows] else (seq_len(nrow(d))[rows] - 1) %/% 3
    robust <- coxph(response(rows) ~ x, control = exact, cluster = cluster)
    put(name, "cluster", column, coef = coef(robust), se = sqrt(diag(robust$var)),
        score = summary(robust)$robscore[["test"]])
    if ("stratum" %in% names(d) && !column %in% c("x.stage", "x.grade", "x.sex")) {
      s <- d$stratum[rows]
      robust <- suppressWarnings(
        coxph(response(rows) ~ x + strata(s), control = exact, cluster = cluster))
      put(name, "cluster_strata", column, coef = coef(robust), se = sqrt(diag(robust$var)),
          score = summary(robust)$robscore[["test"]])
    }
    if ("x.age" %in% columns && column != "x.age" && max(d$x.age, na.rm = TRUE) > 20) {
      rows <- rows & !is.na(d$x.age)
      start <- d$x.age[rows] * 365.25
      late <- Surv(start, start + d$time[rows], d$status[rows] == 1)
      report(name, "entry", column, fit(late, cbind(x = d[[column]][rows])))
    }
    # Groups by the median, and Firth's penalty, in the smaller cohorts.
    rows <- !is.na(d[[column]])
    if (sum(d$status == 1) < 200 && nrow(d) < 500) {
      z <- scale(X)
      found <- firth(response(rows), z)
      put(name, "firth", column, coef = found$estimate, loglik = -found$minimum,
          null = penalized(response(rows), z, 0))
    }
    if (any(d$status == 2)) {
      t <- d$time[rows] + seq_len(sum(rows)) * 1e-4 # crr counts tied times in its own way
      subdistribution <- crr(t, d$status[rows], scale(X), gtol = 1e-12, maxiter = 100)
      put(name, "crr", column, coef = subdistribution$coef, se = sqrt(diag(subdistribution$var)))
      if (length(unique(x > median(x))) == 2) {
        gray <- cuminc(t, d$status[rows], x > median(x))$Tests
        put(name, "gray", column, statistic = gray[, 1], p = gray[, 2])
      }
    }
  }
  for (pair in seq_len(length(columns) - 1)) {
    both <- columns[c(pair, pair + 1)]
    rows <- complete.cases(d[both])
    a <- scale(d[[both[1]]][rows]); b <- scale(d[[both[2]]][rows])
    report(name, "product", both, fit(response(rows), cbind(a * b, a, b)))
    if (sum(d$status == 1) < 200 && nrow(d) < 500) {
      found <- firth(response(rows), cbind(a, b))
      put(name, "firth_two", both, coef = found$estimate, loglik = -found$minimum)
    }
  }
  if ("x.age" %in% columns && "stratum" %in% names(d) && max(d$x.age, na.rm = TRUE) > 20) {
    # Everything at once: delayed entry, strata, clusters, tied times.
    other <- head(setdiff(columns, c("x.age", "x.stage", "x.grade")), 2)
    rows <- complete.cases(d[c("x.age", other)])
    start <- d$x.age[rows] * 365.25
    s <- d$stratum[rows]
    cluster <- if ("cluster" %in% names(d)) d$cluster[rows] else (seq_len(nrow(d))[rows] - 1) %/% 3
    robust <- suppressWarnings(coxph(
      Surv(start, start + d$time[rows], d$status[rows] == 1) ~ as.matrix(d[rows, other]) +
        strata(s), control = exact, cluster = cluster))
    put(name, "cluster_entry", c("x.age", other), coef = coef(robust),
        se = sqrt(diag(robust$var)), score = summary(robust)$robscore[["test"]])
  }
  rows <- complete.cases(d[columns])
  if (sum(d$status[rows] == 1) > 2 * length(columns))
    report(name, "all", columns, fit(response(rows), as.matrix(d[rows, columns])))
}
writeLines(lines, file.path(out, "figures.csv"))
