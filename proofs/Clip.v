(* Records as whole numbers, clipped to a set, and what their sums can differ by. Boxes, balls and lines between rows of
   a table: distance/ball.py and distance/contribution.py. Sums over neighbours: records replaced, and one more. *)
From Coq Require Import ZArith QArith Qabs Qround List Lia Lqa.
From Abcdp Require Import Lists Grid.
Import ListNotations.
Open Scope Z_scope.

Lemma size_cons : forall x l, size (x :: l) = Z.abs x + size l.
Proof. reflexivity. Qed.
Lemma squares_cons : forall x l, squares (x :: l) = x * x + squares l.
Proof. reflexivity. Qed.

(* -- boxes -- *)

Fixpoint clip_box (lows highs numbers : list Z) : list Z :=
  match lows, highs, numbers with
  | low :: lows', high :: highs', k :: numbers' => saturate low high k :: clip_box lows' highs' numbers'
  | _, _, _ => []
  end.
Definition ordered : list Z -> list Z -> Prop := Forall2 Z.le.

Theorem box_apart : forall lows highs, ordered lows highs -> forall first second,
  length first = length lows -> length second = length lows ->
  size (minus (clip_box lows highs first) (clip_box lows highs second)) <= sum (minus highs lows).
Proof.
  unfold minus, saturate. intros lows highs order. induction order as [|low high lows highs below order IH];
    intros first second width width'; [destruct first, second; simpl in *; try discriminate; unfold size; simpl; lia|].
  destruct first as [|a first], second as [|b second]; simpl in width, width'; try discriminate.
  cbn [clip_box zip sum]. rewrite size_cons. specialize (IH first second ltac:(lia) ltac:(lia)).
  unfold saturate in *. lia.
Qed.

(* -- balls -- *)

(* An entry shrunk towards 0 and rounded down, `long` being at least the length of the vector. *)
Definition shrink (radius long k : Z) : Z := Z.sgn k * (Z.abs k * radius / Z.max long radius).

Lemma shrink_abs : forall radius long k, 0 < radius ->
  Z.abs (shrink radius long k) = Z.abs k * radius / Z.max long radius.
Proof.
  intros. unfold shrink. assert (0 <= Z.abs k * radius / Z.max long radius) by (apply Z.div_pos; nia).
  rewrite Z.abs_mul, (Z.abs_eq (_ / _)) by assumption.
  destruct (Z.eq_dec k 0) as [->|some]; [reflexivity|].
  replace (Z.abs (Z.sgn k)) with 1 by (destruct k; simpl; congruence). lia.
Qed.

Lemma shrink_less : forall radius long k, 0 < radius ->
  Z.max long radius * Z.abs (shrink radius long k) <= Z.abs k * radius.
Proof. intros. rewrite shrink_abs by assumption. apply Z.mul_div_le. lia. Qed.

Lemma shrunk_size : forall radius long numbers, 0 < radius ->
  Z.max long radius * size (map (shrink radius long) numbers) <= radius * size numbers.
Proof.
  intros radius long numbers positive. induction numbers as [|k numbers IH]; [unfold size; simpl; lia|].
  cbn [map]. rewrite !size_cons. assert (less := shrink_less radius long k positive). nia.
Qed.

Theorem l1_ball : forall radius numbers, 0 < radius ->
  size (map (shrink radius (size numbers)) numbers) <= radius.
Proof.
  intros radius numbers positive. assert (less := shrunk_size radius (size numbers) numbers positive).
  assert (radius * size numbers <= radius * Z.max (size numbers) radius) by (apply Z.mul_le_mono_nonneg_l; lia).
  apply Z.mul_le_mono_pos_l with (Z.max (size numbers) radius); lia.
Qed.

Lemma shrunk_squares : forall radius long numbers, 0 < radius ->
  (Z.max long radius * Z.max long radius) * squares (map (shrink radius long) numbers)
  <= radius * radius * squares numbers.
Proof.
  intros radius long numbers positive. induction numbers as [|k numbers IH]; [unfold squares; simpl; lia|].
  cbn [map]. rewrite !squares_cons. assert (less := shrink_less radius long k positive).
  set (w := shrink radius long k) in *. set (m := Z.max long radius) in *.
  assert (0 < m) by (unfold m; lia).
  assert (square : (m * Z.abs w) * (m * Z.abs w) <= (Z.abs k * radius) * (Z.abs k * radius))
    by (apply Z.mul_le_mono_nonneg; nia).
  replace (w * w) with (Z.abs w * Z.abs w) by (rewrite <- Z.abs_mul; apply Z.abs_eq; nia).
  replace (k * k) with (Z.abs k * Z.abs k) by (rewrite <- Z.abs_mul; apply Z.abs_eq; nia).
  nia.
Qed.

(* `long` is any whole number whose square is no less than the sum of squares. *)
Theorem l2_ball : forall radius long numbers, 0 < radius -> 0 <= long -> squares numbers <= long * long ->
  squares (map (shrink radius long) numbers) <= radius * radius.
Proof.
  intros radius long numbers positive nonneg enough.
  assert (less := shrunk_squares radius long numbers positive). set (m := Z.max long radius) in *.
  assert (0 < m) by (unfold m; lia). assert (long <= m) by (unfold m; lia).
  assert (long * long <= m * m) by (apply Z.mul_le_mono_nonneg; lia).
  apply Z.mul_le_mono_pos_l with (m * m); [nia|].
  assert (radius * radius * squares numbers <= radius * radius * (m * m)) by (apply Z.mul_le_mono_nonneg_l; nia). lia.
Qed.

(* What lies in the ball stays where it is. *)
Theorem shrink_inside : forall radius long k, 0 < radius -> long <= radius -> shrink radius long k = k.
Proof. intros. unfold shrink. rewrite Z.max_r, Z.div_mul by lia. destruct k; simpl; lia. Qed.

(* Diameters. *)
Theorem l1_ball_apart : forall radius first second, length first = length second ->
  size first <= radius -> size second <= radius -> size (minus first second) <= 2 * radius.
Proof.
  intros radius first second same inside inside'.
  assert (size (minus first second) <= size first + size second); [|lia]. clear inside inside'.
  unfold minus. revert second same. induction first as [|a first IH]; destruct second as [|b second]; simpl; intros;
    try discriminate; try (unfold size; simpl; lia). rewrite !size_cons. specialize (IH second ltac:(lia)). lia.
Qed.

Theorem l2_ball_apart : forall radius first second, length first = length second ->
  squares first <= radius * radius -> squares second <= radius * radius ->
  squares (minus first second) <= (2 * radius) * (2 * radius).
Proof.
  intros radius first second same inside inside'.
  assert (squares (minus first second) <= 2 * squares first + 2 * squares second); [|nia]. clear inside inside'.
  unfold minus. revert second same.
  induction first as [|a first IH]; destruct second as [|b second]; intros same; try discriminate same;
    [unfold squares; simpl; lia|]. cbn [zip]. rewrite !squares_cons.
  specialize (IH second (eq_add_S _ _ same)). assert (square := Z.square_nonneg (a + b)). nia.
Qed.

(* An L2 ball in L1: Cauchy and Schwarz, in whole numbers. *)
Theorem l1_of_l2 : forall numbers, size numbers * size numbers <= Z.of_nat (length numbers) * squares numbers.
Proof.
  induction numbers as [|k numbers IH]; [unfold size, squares; simpl; lia|]. rewrite size_cons, squares_cons.
  cbn [length]. rewrite Nat2Z.inj_succ. assert (S := size_nonneg numbers). assert (Q := squares_nonneg numbers).
  set (n := Z.of_nat (length numbers)) in *. assert (0 <= n) by (unfold n; lia). set (a := Z.abs k).
  assert (k * k = a * a) by (unfold a; rewrite <- Z.abs_mul; symmetry; apply Z.abs_eq; nia).
  assert (0 <= a) by (unfold a; lia).
  assert (2 * a * size numbers <= n * (a * a) + squares numbers); [|nia].
  destruct (Z.eq_dec n 0) as [none|some].
  - assert (size numbers = 0) by nia. nia.
  - assert (square := Z.square_nonneg (n * a - size numbers)).
    apply Z.mul_le_mono_pos_l with n; [lia|]. nia.
Qed.

Theorem l2_ball_apart_in_l1 : forall radius first second, length first = length second ->
  squares first <= radius * radius -> squares second <= radius * radius ->
  size (minus first second) <= Z.sqrt (Z.of_nat (length first) * ((2 * radius) * (2 * radius))).
Proof.
  intros radius first second same inside inside'.
  assert (apart := l2_ball_apart radius first second same inside inside').
  assert (both := l1_of_l2 (minus first second)). unfold minus in both at 3. rewrite zip_length in both by exact same.
  assert (0 <= size (minus first second)) by apply size_nonneg.
  rewrite <- (Z.sqrt_square (size (minus first second))) by assumption. apply Z.sqrt_le_mono. nia.
Qed.

(* -- lines between rows of a table -- *)

Definition mix (whole share : Z) (a b : list Z) : list Z := zip (fun x y => x * (whole - share) + y * share) a b.

Lemma mixed_entry : forall S f g a b c d, 0 <= f <= S -> 0 <= g <= S ->
  S * Z.abs ((a * (S - f) + b * f) - (c * (S - g) + d * g))
  <= (S - f) * (S - g) * Z.abs (a - c) + (S - f) * g * Z.abs (a - d)
     + f * (S - g) * Z.abs (b - c) + f * g * Z.abs (b - d).
Proof.
  intros S f g a b c d share share'.
  rewrite <- (Z.abs_eq S) at 1 by lia. rewrite <- Z.abs_mul.
  replace (S * (a * (S - f) + b * f - (c * (S - g) + d * g)))
    with ((S - f) * (S - g) * (a - c) + (S - f) * g * (a - d) + f * (S - g) * (b - c) + f * g * (b - d)) by ring.
  assert (weigh : forall u x, 0 <= u -> u * Z.abs x = Z.abs (u * x)).
  { intros u x nonneg. rewrite Z.abs_mul. now rewrite (Z.abs_eq u). }
  rewrite !weigh by nia. lia.
Qed.

Lemma mixed_size : forall S f g a b c d, 0 <= f <= S -> 0 <= g <= S ->
  length b = length a -> length c = length a -> length d = length a ->
  S * size (minus (mix S f a b) (mix S g c d))
  <= (S - f) * (S - g) * size (minus a c) + (S - f) * g * size (minus a d)
     + f * (S - g) * size (minus b c) + f * g * size (minus b d).
Proof.
  intros S f g a b c d share share'. unfold minus, mix. revert b c d.
  induction a as [|x a IH]; destruct b as [|y b], c as [|z c], d as [|w d]; simpl; intros; try discriminate;
    try (unfold size; simpl; lia). rewrite !size_cons.
  assert (head := mixed_entry S f g x y z w share share'). specialize (IH b c d ltac:(lia) ltac:(lia) ltac:(lia)). lia.
Qed.

(* Two points on lines are no further apart than the ends of the lines. *)
Theorem lines_apart : forall S f g a b c d K, 0 < S -> 0 <= f <= S -> 0 <= g <= S ->
  length b = length a -> length c = length a -> length d = length a ->
  size (minus a c) <= K -> size (minus a d) <= K -> size (minus b c) <= K -> size (minus b d) <= K ->
  size (minus (mix S f a b) (mix S g c d)) <= S * K.
Proof.
  intros. apply Z.mul_le_mono_pos_l with S; [assumption|].
  assert (all : S * size (minus (mix S f a b) (mix S g c d))
    <= (S - f) * (S - g) * size (minus a c) + (S - f) * g * size (minus a d)
       + f * (S - g) * size (minus b c) + f * g * size (minus b d)) by now apply mixed_size.
  assert ((S - f) * (S - g) * size (minus a c) <= (S - f) * (S - g) * K) by (apply Z.mul_le_mono_nonneg_l; nia).
  assert ((S - f) * g * size (minus a d) <= (S - f) * g * K) by (apply Z.mul_le_mono_nonneg_l; nia).
  assert (f * (S - g) * size (minus b c) <= f * (S - g) * K) by (apply Z.mul_le_mono_nonneg_l; nia).
  assert (f * g * size (minus b d) <= f * g * K) by (apply Z.mul_le_mono_nonneg_l; nia).
  nia.
Qed.

(* Rounded half up to whole numbers they are less than one further apart in each entry. *)
Definition round_half_up (whole k : Z) : Z := (k + whole / 2) / whole.

Lemma rounded_entries : forall S first second, 0 < S -> length first = length second -> first <> [] ->
  S * size (minus (map (round_half_up S) first) (map (round_half_up S) second))
  < size (minus first second) + S * Z.of_nat (length first).
Proof.
  intros S first second positive. unfold minus. revert second.
  induction first as [|a first IH]; destruct second as [|b second]; intros same some; try discriminate; [congruence|].
  cbn [map zip length]. rewrite !size_cons, Nat2Z.inj_succ.
  assert (head : S * Z.abs (round_half_up S a - round_half_up S b) < Z.abs (a - b) + S).
  { unfold round_half_up. assert (low := Z.mul_div_le (a + S / 2) S positive).
    assert (low' := Z.mul_div_le (b + S / 2) S positive).
    assert (high := Z.mul_succ_div_gt (a + S / 2) S positive).
    assert (high' := Z.mul_succ_div_gt (b + S / 2) S positive).
    set (p := (a + S / 2) / S) in *. set (q := (b + S / 2) / S) in *. destruct (Z.abs_spec (p - q)); nia. }
  destruct first as [|a' first].
  - destruct second; [|discriminate]. unfold size in *. simpl in *. nia.
  - assert (tail := IH second ltac:(simpl in *; lia) ltac:(discriminate)). nia.
Qed.

Theorem interpolated_apart : forall S f g a b c d K, 0 < S -> 0 <= f <= S -> 0 <= g <= S -> a <> [] ->
  length b = length a -> length c = length a -> length d = length a ->
  size (minus a c) <= K -> size (minus a d) <= K -> size (minus b c) <= K -> size (minus b d) <= K ->
  size (minus (map (round_half_up S) (mix S f a b)) (map (round_half_up S) (mix S g c d)))
  <= K + Z.of_nat (length a) - 1.
Proof.
  intros S f g a b c d K positive share share' some B C Dd ac ad bc bd.
  assert (apart := lines_apart S f g a b c d K positive share share' B C Dd ac ad bc bd).
  assert (width : length (mix S f a b) = length a) by (apply zip_length; lia).
  assert (width' : length (mix S g c d) = length a) by (unfold mix; rewrite zip_length; lia).
  assert (less := rounded_entries S (mix S f a b) (mix S g c d) positive ltac:(lia)
                    ltac:(destruct a; [congruence|]; destruct b; discriminate)).
  rewrite width in less.
  assert (S * size (minus (map (round_half_up S) (mix S f a b)) (map (round_half_up S) (mix S g c d)))
          < S * (K + Z.of_nat (length a))) by lia.
  assert (size (minus (map (round_half_up S) (mix S f a b)) (map (round_half_up S) (mix S g c d)))
          < K + Z.of_nat (length a)) by (apply Z.mul_lt_mono_pos_l with S; assumption).
  lia.
Qed.

(* -- sums over records -- *)

Definition total (width : nat) (records : list (list Z)) : list Z := fold_right plus (repeat 0 width) records.
Definition wide (width : nat) : list (list Z) -> Prop := Forall (fun v => length v = width).

(* Datasets of one size of which at most m records differ, each within a diameter. *)
Inductive replaced (norm : list Z -> Z) (diameter : Z) : nat -> list (list Z) -> list (list Z) -> Prop :=
| nobody : replaced norm diameter 0 [] []
| kept : forall m v first second, replaced norm diameter m first second ->
    replaced norm diameter m (v :: first) (v :: second)
| other : forall m v w first second, norm (minus v w) <= diameter -> replaced norm diameter m first second ->
    replaced norm diameter (S m) (v :: first) (w :: second).

Lemma total_length : forall width records, wide width records -> length (total width records) = width.
Proof.
  intros width records all. induction all; simpl; [apply repeat_length|]. unfold plus. rewrite zip_length; lia.
Qed.

Lemma size_plus : forall a b c d, length b = length a -> length c = length a -> length d = length a ->
  size (minus (plus a b) (plus c d)) <= size (minus a c) + size (minus b d).
Proof.
  unfold minus, plus. induction a as [|x a IH]; destruct b as [|y b], c as [|z c], d as [|w d]; simpl; intros;
    try discriminate; try (unfold size; simpl; lia). rewrite !size_cons.
  specialize (IH b c d ltac:(lia) ltac:(lia) ltac:(lia)). lia.
Qed.

Lemma largest_plus : forall a b c d, length b = length a -> length c = length a -> length d = length a ->
  largest (minus (plus a b) (plus c d)) <= largest (minus a c) + largest (minus b d).
Proof.
  unfold minus, plus. induction a as [|x a IH]; destruct b as [|y b], c as [|z c], d as [|w d]; simpl; intros;
    try discriminate; try (simpl; lia). specialize (IH b c d ltac:(lia) ltac:(lia) ltac:(lia)).
  assert (0 <= largest (zip Z.sub a c)) by apply largest_nonneg.
  assert (0 <= largest (zip Z.sub b d)) by apply largest_nonneg. lia.
Qed.

Lemma norm_same : forall v, size (minus v v) = 0 /\ largest (minus v v) = 0.
Proof.
  unfold minus. induction v as [|x v [IH IH']]; [easy|]. cbn [zip largest]. rewrite size_cons, IH, IH'. lia.
Qed.

Theorem replaced_total : forall diameter m width first second, 0 <= diameter ->
  replaced size diameter m first second -> wide width first -> wide width second ->
  size (minus (total width first) (total width second)) <= Z.of_nat m * diameter.
Proof.
  intros diameter m width first second positive near.
  induction near as [|m v first second near IH|m v w first second apart near IH]; intros all all'.
  - rewrite (proj1 (norm_same _)). lia.
  - inversion all; inversion all'; subst. cbn [total fold_right].
    assert (both := size_plus v (total (length v) first) v (total (length v) second)).
    rewrite (proj1 (norm_same v)) in both. rewrite !total_length in both by assumption.
    specialize (IH ltac:(assumption) ltac:(assumption)). specialize (both eq_refl eq_refl eq_refl).
    unfold total in *. lia.
  - inversion all as [|? ? width1 rest]; inversion all' as [|? ? width2 rest']; subst. cbn [total fold_right].
    assert (both := size_plus v (total (length v) first) w (total (length v) second)).
    rewrite !total_length in both by assumption. specialize (IH ltac:(assumption) ltac:(assumption)).
    specialize (both eq_refl ltac:(lia) eq_refl). unfold total in *. lia.
Qed.

Theorem replaced_largest : forall diameter m width first second, 0 <= diameter ->
  replaced largest diameter m first second -> wide width first -> wide width second ->
  largest (minus (total width first) (total width second)) <= Z.of_nat m * diameter.
Proof.
  intros diameter m width first second positive near.
  induction near as [|m v first second near IH|m v w first second apart near IH]; intros all all'.
  - rewrite (proj2 (norm_same _)). lia.
  - inversion all; inversion all'; subst. cbn [total fold_right].
    assert (both := largest_plus v (total (length v) first) v (total (length v) second)).
    rewrite (proj2 (norm_same v)) in both. rewrite !total_length in both by assumption.
    specialize (IH ltac:(assumption) ltac:(assumption)). specialize (both eq_refl eq_refl eq_refl).
    unfold total in *. lia.
  - inversion all as [|? ? width1 rest]; inversion all' as [|? ? width2 rest']; subst. cbn [total fold_right].
    assert (both := largest_plus v (total (length v) first) w (total (length v) second)).
    rewrite !total_length in both by assumption. specialize (IH ltac:(assumption) ltac:(assumption)).
    specialize (both eq_refl ltac:(lia) eq_refl). unfold total in *. lia.
Qed.

(* One record more: (T + v) / (N + 1) and T / N, over the common denominator N (N + 1). *)
Definition times (n : Z) (v : list Z) : list Z := map (Z.mul n) v.

Lemma larger_mean : forall n v t, length v = length t ->
  minus (times n (plus v t)) (times (n + 1) t) = minus (times n v) t.
Proof.
  unfold minus, times, plus. induction v as [|x v IH]; destruct t as [|y t]; simpl; intros; try discriminate; auto.
  f_equal; [lia|]. apply IH. lia.
Qed.

Lemma far_from_all : forall diameter width v records, length v = width -> wide width records ->
  Forall (fun w => size (minus v w) <= diameter) records ->
  size (minus (times (Z.of_nat (length records)) v) (total width records)) <= Z.of_nat (length records) * diameter.
Proof.
  intros diameter width v records width' all near. subst width. induction near as [|w records close near IH].
  - simpl. clear. unfold minus, times. induction v as [|x v IH]; [unfold size; simpl; lia|].
    cbn [length repeat map zip]. rewrite size_cons. lia.
  - inversion all; subst. specialize (IH ltac:(assumption)). cbn [length total fold_right].
    rewrite Nat2Z.inj_succ. set (n := Z.of_nat (length records)) in *.
    assert (split : times (Z.succ n) v = plus v (times n v)).
    { unfold times, plus. clear. induction v as [|x v IH]; [reflexivity|]. cbn [map zip]. f_equal; [lia|exact IH]. }
    rewrite split.
    assert (both := size_plus v (times n v) w (total (length v) records)).
    rewrite total_length in both by assumption. unfold times in both at 1. rewrite map_length in both.
    specialize (both eq_refl ltac:(assumption) eq_refl). unfold total in *. lia.
Qed.

Theorem added_total : forall diameter width v records, length v = width -> wide width records ->
  Forall (fun w => size (minus v w) <= diameter) records ->
  let n := Z.of_nat (length records) in
  size (minus (times n (total width (v :: records))) (times (n + 1) (total width records))) <= n * diameter.
Proof.
  intros diameter width v records same all near n. cbn [total fold_right]. fold (total width records).
  rewrite larger_mean by (rewrite total_length; assumption). now apply far_from_all.
Qed.

(* -- the private summary whose sensitivity is enforced -- *)

Lemma moves_of_totals : forall (unit : Q) first second, (0 < unit)%Q ->
  (moves (map (fun t => inject_Z t * unit) first) (map (fun t => inject_Z t * unit) second)
   <= inject_Z (size (minus first second)) * unit)%Q.
Proof.
  intros unit first second positive. unfold minus. revert second.
  induction first as [|a first IH]; destruct second as [|b second]; cbn [map zip moves];
    try (unfold size; cbn; change (inject_Z 0) with 0%Q; lra).
  rewrite size_cons, inject_Z_plus.
  assert (head : (Qabs (inject_Z a * unit - inject_Z b * unit) == inject_Z (Z.abs (a - b)) * unit)%Q).
  { setoid_replace (inject_Z a * unit - inject_Z b * unit)%Q with (inject_Z (a - b) * unit)%Q
      by (unfold Z.sub; rewrite inject_Z_plus, inject_Z_opp; ring).
    rewrite Qabs_Qmult, (Qabs_pos unit) by lra. reflexivity. }
  rewrite head. specialize (IH second). lra.
Qed.

(* Sums of clipped records, in units of 2^-bits / N, on a grid of step g: the L1 rule without an error. *)
Theorem enforced_rule : forall (unit step : Q) diameter m width first second, (0 < unit)%Q -> (0 < step)%Q ->
  (0 < width)%nat -> 0 <= diameter -> replaced size diameter m first second -> wide width first -> wide width second ->
  let summary records := map (fun t => quantise step (inject_Z t * unit)%Q) (total width records) in
  size (minus (summary first) (summary second))
  <= Qceiling (inject_Z (Z.of_nat m * diameter) * unit / step + inject_Z (Z.of_nat width)) - 1.
Proof.
  intros unit step diameter m width first second positive positive' some nonneg near all all' summary.
  assert (apart := replaced_total diameter m width first second nonneg near all all').
  assert (length1 := total_length width first all). assert (length2 := total_length width second all').
  subst summary. cbv beta. unfold quantise. set (f := fun t => (inject_Z t * unit)%Q).
  rewrite <- !(map_map (fun t => (f t / step)%Q) Qfloor).
  rewrite <- !(map_map f (fun x => (x / step)%Q)).
  set (a := map f (total width first)). set (b := map f (total width second)).
  assert (la : length a = width) by (unfold a; now rewrite map_length).
  assert (lb : length b = width) by (unfold b; now rewrite map_length).
  assert (rule := floors_rule (map (fun x => (x / step)%Q) a) (map (fun x => (x / step)%Q) b)
    (inject_Z (Z.of_nat m * diameter) * unit / step)%Q).
  unfold count in rule. rewrite !map_length, la, lb in rule. apply rule; [reflexivity| |].
  - destruct a; [simpl in la; lia|discriminate].
  - eapply Qle_trans; [now apply moves_in_steps|].
    apply Qmult_le_compat_r; [|apply Qlt_le_weak, Qinv_lt_0_compat; assumption].
    eapply Qle_trans; [now apply moves_of_totals|]. apply Qmult_le_compat_r; [now rewrite <- Zle_Qle|lra].
Qed.

(* The same for one record more: means over n + 1 and over n records, n being at least `least`. *)
Lemma moves_of_means : forall (unit : Q) n m first second, (0 < unit)%Q -> 0 < n -> 0 < m ->
  (moves (map (fun t => inject_Z t * (unit / inject_Z n)) first)
         (map (fun t => inject_Z t * (unit / inject_Z m)) second)
   <= inject_Z (size (minus (times m first) (times n second))) * (unit / (inject_Z n * inject_Z m)))%Q.
Proof.
  intros unit n m first second positive some some'. unfold minus, times. revert second.
  assert (n' : (0 < inject_Z n)%Q) by (change 0%Q with (inject_Z 0); now rewrite <- Zlt_Qlt).
  assert (m' : (0 < inject_Z m)%Q) by (change 0%Q with (inject_Z 0); now rewrite <- Zlt_Qlt).
  assert (both : (0 < inject_Z n * inject_Z m)%Q) by now apply Qmult_lt_0_compat.
  assert (share : (0 < unit / (inject_Z n * inject_Z m))%Q) by (apply Qlt_shift_div_l; lra).
  induction first as [|a first IH]; destruct second as [|b second]; cbn [map zip moves];
    try (unfold size; cbn [map sum]; change (inject_Z 0) with 0%Q; lra).
  rewrite size_cons, inject_Z_plus.
  assert (head : (Qabs (inject_Z a * (unit / inject_Z n) - inject_Z b * (unit / inject_Z m))
                  == inject_Z (Z.abs (m * a - n * b)) * (unit / (inject_Z n * inject_Z m)))%Q).
  { setoid_replace (inject_Z a * (unit / inject_Z n) - inject_Z b * (unit / inject_Z m))%Q
      with (inject_Z (m * a - n * b) * (unit / (inject_Z n * inject_Z m)))%Q
      by (unfold Z.sub; rewrite inject_Z_plus, inject_Z_opp, !inject_Z_mult; field; split; lra).
    rewrite Qabs_Qmult, (Qabs_pos (unit / _)) by lra. reflexivity. }
  rewrite head. specialize (IH second). lra.
Qed.

Theorem enforced_rule_added : forall (unit step : Q) diameter least width v records, (0 < unit)%Q -> (0 < step)%Q ->
  (0 < width)%nat -> 0 <= diameter -> length v = width -> wide width records ->
  Forall (fun w => size (minus v w) <= diameter) records ->
  let n := Z.of_nat (length records) in 0 < n -> 0 <= least <= n ->
  let summary n records := map (fun t => quantise step (inject_Z t * (unit / inject_Z n))%Q) (total width records) in
  size (minus (summary (n + 1) (v :: records)) (summary n records))
  <= Qceiling (inject_Z diameter * (unit / inject_Z (least + 1)) / step + inject_Z (Z.of_nat width)) - 1.
Proof.
  intros unit step diameter least width v records positive positive' some nonneg same all near n none enough summary.
  assert (apart := added_total diameter width v records same all near). fold n in apart. cbv zeta in apart.
  assert (all' : wide width (v :: records)) by (constructor; assumption).
  assert (length1 := total_length width (v :: records) all'). assert (length2 := total_length width records all).
  assert (n1 : (0 < inject_Z (n + 1))%Q) by (change 0%Q with (inject_Z 0); rewrite <- Zlt_Qlt; lia).
  assert (n0 : (0 < inject_Z n)%Q) by (change 0%Q with (inject_Z 0); rewrite <- Zlt_Qlt; lia).
  assert (l1 : (0 < inject_Z (least + 1))%Q) by (change 0%Q with (inject_Z 0); rewrite <- Zlt_Qlt; lia).
  subst summary. cbv beta. unfold quantise.
  set (f := fun t => (inject_Z t * (unit / inject_Z (n + 1)))%Q).
  set (g := fun t => (inject_Z t * (unit / inject_Z n))%Q).
  rewrite <- (map_map (fun t => (f t / step)%Q) Qfloor), <- (map_map (fun t => (g t / step)%Q) Qfloor).
  rewrite <- (map_map f (fun x => (x / step)%Q)), <- (map_map g (fun x => (x / step)%Q)).
  set (a := map f (total width (v :: records))). set (b := map g (total width records)).
  assert (la : length a = width) by (unfold a; now rewrite map_length).
  assert (lb : length b = width) by (unfold b; now rewrite map_length).
  assert (rule := floors_rule (map (fun x => (x / step)%Q) a) (map (fun x => (x / step)%Q) b)
    (inject_Z diameter * (unit / inject_Z (least + 1)) / step)%Q).
  unfold count in rule. rewrite !map_length, la, lb in rule. apply rule; [reflexivity| |].
  - destruct a; [simpl in la; lia|discriminate].
  - eapply Qle_trans; [now apply moves_in_steps|].
    apply Qmult_le_compat_r; [|apply Qlt_le_weak, Qinv_lt_0_compat; assumption].
    eapply Qle_trans; [apply moves_of_means; try assumption; lia|].
    assert (share : (0 < unit / (inject_Z (n + 1) * inject_Z n))%Q)
      by (apply Qlt_shift_div_l; [now apply Qmult_lt_0_compat|lra]).
    apply Qle_trans with (inject_Z (n * diameter) * (unit / (inject_Z (n + 1) * inject_Z n)))%Q.
    { apply Qmult_le_compat_r; [now rewrite <- Zle_Qle|lra]. }
    rewrite inject_Z_mult.
    setoid_replace (inject_Z n * inject_Z diameter * (unit / (inject_Z (n + 1) * inject_Z n)))%Q
      with (inject_Z diameter * (unit / inject_Z (n + 1)))%Q by (field; split; lra).
    rewrite !(Qmult_comm (inject_Z diameter)). apply Qmult_le_compat_r; [|rewrite <- (Zle_Qle 0); assumption].
    unfold Qdiv. rewrite !(Qmult_comm unit). apply Qmult_le_compat_r; [|lra].
    apply Qle_shift_inv_l; [assumption|]. setoid_replace (/ inject_Z (n + 1) * inject_Z (least + 1))%Q
      with (inject_Z (least + 1) / inject_Z (n + 1))%Q by (unfold Qdiv; ring).
    apply Qle_shift_div_r; [assumption|]. rewrite Qmult_1_l, <- Zle_Qle. lia.
Qed.
